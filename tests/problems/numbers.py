"""Programs for the problems about numbers."""

from tests.problems.solution import But, Solution

SOLUTIONS = {
    "to_base": Solution(
        right="""
        DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"

        def to_base(number, base):
            if not 2 <= base <= 36:
                raise ValueError("the base must be from 2 to 36")
            rest = abs(number)
            text = ""
            while rest or not text:
                rest, digit = divmod(rest, base)
                text = DIGITS[digit] + text
            return "-" + text if number < 0 else text
        """,
        wrong={
            "nothing for 0": But("while rest or not text", "while rest"),
            "the sign is lost": But('"-" + text if number < 0 else text', "text"),
            "backwards": But("DIGITS[digit] + text", "text + DIGITS[digit]"),
            "capital letters": But('z"', 'z".upper()'),
            "base 36 is refused": But("<= 36", "< 36"),
            "base 37 is let through": But("not 2 <= base <= 36", "base < 2"),
            "through floats": But("rest, digit = divmod(rest, base)", "rest, digit = int(rest / base), rest % base"),
        },
    ),
    "persistence": Solution(
        right="""
        def persistence(number):
            if number < 0:
                raise ValueError("the number must not be negative")
            count = 0
            while number > 9:
                number = sum(map(int, str(number)))
                count += 1
            return count
        """,
        wrong={
            "10 is one digit": But("number > 9", "number > 10"),
            "one round at least": But("count = 0", "count = 0 if number > 9 else 1"),
            "negative numbers have no sum": But('raise ValueError("the number must not be negative")', "return 0"),
            "the root, not the count": But("return count", "return number"),
            "digits are multiplied": But(
                "sum(map(int, str(number)))", "__import__('math').prod(map(int, str(number)))"
            ),
            "by remainders of 9": """
            def persistence(number):
                if number < 0:
                    raise ValueError
                if number < 10:
                    return 0
                return 1 if sum(map(int, str(number))) < 10 else 2
            """,
        },
    ),
    "next_palindrome": Solution(
        right="""
        def next_palindrome(number):
            digits = str(number + 1)
            half = (len(digits) + 1) // 2
            head = digits[:half]
            found = int(head + head[: len(digits) - half][::-1])
            if found <= number:
                head = str(int(head) + 1)
                found = int(head + head[: len(digits) - half][::-1])
            return found
        """,
        wrong={
            "a palindrome is its own next one": But("found <= number", "found < number"),
            "the number has one digit more after all nines": But("str(number + 1)", "str(number)"),
            "one more in front is always right": But("if found <= number", "if found"),
            "the first half alone decides": But("if found <= number", "if False"),
            "one after the other": """
            def next_palindrome(number):
                number += 1
                while str(number) != str(number)[::-1]:
                    number += 1
                return number
            """,
            "the digits of the sum are mirrored once": """
            def next_palindrome(number):
                digits = str(number)
                half = (len(digits) + 1) // 2
                mirrored = digits[:half] + digits[: len(digits) // 2][::-1]
                if int(mirrored) > number:
                    return int(mirrored)
                left = str(int(digits[:half]) + 1)
                return int(left + left[: len(digits) // 2][::-1])
            """,
        },
    ),
    "decimal_text": Solution(
        right="""
        def decimal_text(numerator, denominator):
            if denominator == 0:
                raise ZeroDivisionError("the denominator must not be 0")
            sign = "-" if numerator * denominator < 0 else ""
            whole, rest = divmod(abs(numerator), abs(denominator))
            digits = []
            seen = {}
            while rest and rest not in seen:
                seen[rest] = len(digits)
                digit, rest = divmod(rest * 10, abs(denominator))
                digits.append(str(digit))
            if rest:
                at = seen[rest]
                digits = [*digits[:at], "(", *digits[at:], ")"]
            return sign + str(whole) + ("." + "".join(digits) if digits else "")
        """,
        wrong={
            "a sign that floor division loses": But(
                "divmod(abs(numerator), abs(denominator))", "divmod(numerator, denominator)"
            ),
            "the sign of what is before the point": But(
                "numerator * denominator < 0", "int(numerator / denominator) < 0"
            ),
            "always a point": But(' if digits else "")', ")"),
            "all digits are in parentheses": But("at = seen[rest]", "at = 0"),
            "repeats of a digit, not of a rest": """
            def decimal_text(numerator, denominator):
                sign = "-" if numerator * denominator < 0 else ""
                whole, rest = divmod(abs(numerator), abs(denominator))
                digits = ""
                while rest:
                    digit, rest = divmod(rest * 10, abs(denominator))
                    if str(digit) in digits:
                        at = digits.index(str(digit))
                        digits = digits[:at] + "(" + digits[at:] + ")"
                        break
                    digits += str(digit)
                return sign + str(whole) + ("." + digits if digits else "")
            """,
            "through floats": But(
                "whole, rest = divmod(abs(numerator), abs(denominator))",
                "whole, rest = int(abs(numerator / denominator)), abs(numerator) % abs(denominator)",
            ),
        },
    ),
    "count_digit_sum": Solution(
        right="""
        def count_digit_sum(limit, total):
            digits = [int(char) for char in str(limit)]
            ways = [1] + [0] * 9 * len(digits)
            tables = [ways]
            for _ in digits:
                ways = [sum(ways[max(at - 9, 0) : at + 1]) for at in range(len(ways))]
                tables.append(ways)
            count = 0
            left = total
            for place, digit in enumerate(digits):
                table = tables[len(digits) - place - 1]
                for lower in range(digit):
                    if 0 <= left - lower < len(table):
                        count += table[left - lower]
                left -= digit
            return count + (left == 0)
        """,
        wrong={
            "the limit does not count": But("count + (left == 0)", "count"),
            "a negative rest counts from the end": But("0 <= left - lower < len(table)", "left - lower < len(table)"),
            "the table is one place too long": But("tables[len(digits) - place - 1]", "tables[len(digits) - place]"),
            "digits up to 8": But("max(at - 9, 0)", "max(at - 8, 0)"),
            "0 is left out": But("return count + (left == 0)", "return count + (left == 0) - (total == 0)"),
            "one number after the other": """
            def count_digit_sum(limit, total):
                return sum(sum(map(int, str(n))) == total for n in range(limit + 1))
            """,
        },
    ),
}
