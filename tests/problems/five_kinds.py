"""Programs for the kinds of the set ``five_kinds``; each problem has a name of its own for ``f``."""

from tests.problems.solution import But, Solution

SOLUTIONS = {
    "merge_sorted": Solution(
        right="""
        def f(first, second):
            merged, at = [], 0
            for value in first:
                while at < len(second) and second[at] < value:
                    merged.append(second[at])
                    at += 1
                merged.append(value)
            return merged + second[at:]
        """,
        wrong={
            "one after the other": But("second[at] < value", "False"),
            "the rest is lost": But("merged + second[at:]", "merged"),
            "repeats are lost": But("merged + second[at:]", "sorted(set(merged + second[at:]))"),
        },
    ),
    "binary_search": Solution(
        right="""
        def f(values, target):
            low, high = 0, len(values) - 1
            while low <= high:
                middle = (low + high) // 2
                if values[middle] == target:
                    return middle
                if values[middle] < target:
                    low = middle + 1
                else:
                    high = middle - 1
            return -1
        """,
        wrong={
            "the last place is never looked at": But("low <= high", "low < high"),
            "None where it is not": But("return -1", "return None"),
            "places from 1": But("return middle", "return middle + 1"),
        },
    ),
    "balanced": Solution(
        right="""
        def f(text):
            pairs = {")": "(", "]": "[", "}": "{"}
            stack = []
            for char in text:
                if char in "([{":
                    stack.append(char)
                elif char in pairs:
                    if not stack or stack.pop() != pairs[char]:
                        return False
            return not stack
        """,
        wrong={
            "what stays open": But("return not stack", "return True"),
            "how many of each": """
            def f(text):
                return all(text.count(a) == text.count(b) for a, b in ("()", "[]", "{}"))
            """,
            "only round ones": But('")": "(", "]": "[", "}": "{"', '")": "("'),
        },
    ),
    "roman": Solution(
        right="""
        def f(number):
            values = (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1)
            signs = ("M", "CM", "D", "CD", "C", "XC", "L", "XL", "X", "IX", "V", "IV", "I")
            text = ""
            for value, sign in zip(values, signs):
                text += sign * (number // value)
                number %= value
            return text
        """,
        wrong={
            "four equal signs": But("zip(values, signs)", "list(zip(values, signs))[::2]"),
            "no 40 and 90": But('"XC", "L", "XL"', '"L" + "X" * 4, "L", "X" * 4'),
            "no 4 and 9": But('"IX", "V", "IV"', '"VIIII", "V", "IIII"'),
        },
    ),
    "rle": Solution(
        right="""
        def f(text):
            runs = []
            for char in text:
                if runs and runs[-1][0] == char:
                    runs[-1] = char, runs[-1][1] + 1
                else:
                    runs.append((char, 1))
            return runs
        """,
        wrong={
            "lists for pairs": But("runs[-1] = char, runs[-1][1] + 1", "runs[-1] = [char, runs[-1][1] + 1]"),
            "the last run is lost": But("return runs", "return runs[:-1]"),
            "the other way round": But("return runs", "return [pair[::-1] for pair in runs]"),
        },
    ),
}
