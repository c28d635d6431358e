"""Programs for the problems about parsing."""

from tests.problems.solution import But, Solution

SOLUTIONS = {
    "parse_pairs": Solution(
        right="""
        def parse_pairs(text):
            settings = {}
            for part in text.split(";"):
                if not part.strip():
                    continue
                name, equals, value = part.partition("=")
                if not equals or not name.strip():
                    raise ValueError(f"not a setting: {part!r}")
                settings[name.strip()] = value.strip()
            return settings
        """,
        wrong={
            "the last equals sign parts": But("part.partition", "part.rpartition"),
            "a second equals sign is an error": But(
                'name, equals, value = part.partition("=")', 'equals = "="\n        name, value = part.split("=")'
            ),
            "an empty name is a name": But("not equals or not name.strip()", "not equals"),
            "a setting without equals sign is skipped": But("if not part.strip()", 'if "=" not in part'),
            "whitespace inside is removed as well": But("= value.strip()", '= "".join(value.split())'),
            "the first value counts": But(
                "settings[name.strip()] = value.strip()", "settings.setdefault(name.strip(), value.strip())"
            ),
            "an empty value is an error": But(
                "not equals or not name.strip()", "not equals or not name.strip() or not value"
            ),
        },
    ),
    "parse_duration": Solution(
        right="""
        import re

        PATTERN = re.compile(r"(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?")

        def parse_duration(text):
            found = PATTERN.fullmatch(text)
            if not text or not found:
                raise ValueError(f"not a duration: {text!r}")
            return sum(int(part or 0) * unit for part, unit in zip(found.groups(), (86400, 3600, 60, 1)))
        """,
        wrong={
            "nothing is a duration of 0": But("if not text or not found", "if not found"),
            "what follows is ignored": But("fullmatch", "match"),
            "a line break at the end": But("PATTERN.fullmatch(text)", "re.match(PATTERN.pattern + '$', text)"),
            "digits of other scripts": But(
                'PATTERN = re.compile(r"(?:([0-9]+)d)?(?:([0-9]+)h)?',
                'PATTERN = re.compile(r"(?:([0-9]+)d)?(?:(\\d+)h)?',
            ),
            "any order, any number of times": """
            import re

            def parse_duration(text):
                if not re.fullmatch(r"([0-9]+[dhms])+", text):
                    raise ValueError
                units = {"d": 86400, "h": 3600, "m": 60, "s": 1}
                return sum(int(n) * units[unit] for n, unit in re.findall(r"([0-9]+)([dhms])", text))
            """,
            "only the parts that are found": """
            import re

            def parse_duration(text):
                parts = re.findall(r"([0-9]+)([dhms])", text)
                if not parts:
                    raise ValueError
                return sum(int(n) * {"d": 86400, "h": 3600, "m": 60, "s": 1}[unit] for n, unit in parts)
            """,
            "spaces are removed": But("PATTERN.fullmatch(text)", "PATTERN.fullmatch(text.replace(' ', ''))"),
            "a number for seconds": But("return sum(int(part or 0) * unit", "return sum(float(part or 0) * unit"),
        },
    ),
    "expand_repeats": Solution(
        right="""
        def expand_repeats(text):
            stack = []
            done, number = "", ""
            for char in text:
                if char in "0123456789":
                    number += char
                elif char == "[":
                    stack.append((done, int(number)))
                    done, number = "", ""
                elif char == "]":
                    before, times = stack.pop()
                    done = before + done * times
                else:
                    done += char
            return done
        """,
        wrong={
            "one digit": But("number += char", "number = char"),
            "what stands before is repeated as well": But("before + done * times", "(before + done) * times"),
            "what stands before is lost": But("done = before + done * times", "done = done * times"),
            "0 is 1": But("done * times", "done * max(times, 1)"),
            "without depth": """
            import re

            def expand_repeats(text):
                return re.sub(r"([0-9]+)\\[(.*?)\\]", lambda found: int(found[1]) * found[2], text)
            """,
            "parts that are not empty": """
            import re

            def expand_repeats(text):
                while "[" in text:
                    shorter = re.sub(r"([0-9]+)\\[([^\\[\\]]+)\\]", lambda found: int(found[1]) * found[2], text)
                    if shorter == text:
                        break
                    text = shorter
                return text
            """,
        },
    ),
    "evaluate": Solution(
        right="""
        import re

        def evaluate(text):
            if not re.fullmatch(r"[-+*^() 0-9]*", text):
                raise ValueError("a character that means nothing")
            tokens = re.findall(r"[0-9]+|[^ ]", text) + ["end"]
            at = 0

            def take(*wanted):
                nonlocal at
                if tokens[at] in wanted:
                    at += 1
                    return tokens[at - 1]
                return None

            def total():
                value = product()
                while sign := take("+", "-"):
                    value += product() if sign == "+" else -product()
                return value

            def product():
                value = signed()
                while take("*"):
                    value *= signed()
                return value

            def signed():
                return -signed() if take("-") else power()

            def power():
                base = operand()
                if not take("^"):
                    return base
                exponent = signed()
                if exponent < 0:
                    raise ValueError("a negative exponent")
                return base**exponent

            def operand():
                nonlocal at
                if take("("):
                    value = total()
                    if not take(")"):
                        raise ValueError("a parenthesis is open")
                    return value
                if not tokens[at].isdigit():
                    raise ValueError(f"not a number: {tokens[at]}")
                at += 1
                return int(tokens[at - 1])

            value = total()
            if tokens[at] != "end":
                raise ValueError(f"too much: {tokens[at]}")
            return value
        """,
        wrong={
            "Python's own rules": """
            def evaluate(text):
                try:
                    return int(eval(text.replace("^", "**")))
                except (SyntaxError, TypeError, NameError) as error:
                    raise ValueError from error
            """,
            "powers from the left": But(
                '    if not take("^"):\n            return base\n        exponent = signed()',
                '    exponent = 1\n        while take("^"):\n            base, exponent = base**exponent, operand()',
            ),
            "one minus sign at most": But("return -signed() if", "return -power() if"),
            "what is left over": But('if tokens[at] != "end"', "if False"),
            "spaces inside numbers": But(
                're.findall(r"[0-9]+|[^ ]", text)', 're.findall(r"[0-9]+|.", text.replace(" ", ""))'
            ),
            "a negative exponent gives a fraction": But("if exponent < 0", "if exponent is None"),
            "differences from the right": But(
                'value += product() if sign == "+" else -product()', 'value += product() if sign == "+" else -total()'
            ),
            "a parenthesis may stay open": But('if not take(")"):', 'if not take(")", "end"):'),
        },
    ),
    "read_table": Solution(
        right="""
        def read_table(text):
            rows, row, at = [], [], 0
            while at < len(text) or row:
                if text[at : at + 1] == '"':
                    field, at = "", at + 1
                    while True:
                        quote = text.find('"', at)
                        if quote < 0:
                            raise ValueError("a quote is never closed")
                        field += text[at:quote]
                        at = quote + 1
                        if text[at : at + 1] != '"':
                            break
                        field, at = field + '"', at + 1
                else:
                    start = at
                    while at < len(text) and text[at] not in ",\\n":
                        at += 1
                    field = text[start:at]
                row.append(field)
                if at < len(text) and text[at] not in ",\\n":
                    raise ValueError("something follows a quote")
                if at == len(text) or text[at] == "\\n":
                    rows.append(row)
                    row = []
                at += 1
            return rows
        """,
        wrong={
            "the csv module": """
            import csv
            import io

            def read_table(text):
                return list(csv.reader(io.StringIO(text, newline="")))
            """,
            "the strict csv module": """
            import csv
            import io

            def read_table(text):
                try:
                    return [row or [""] for row in csv.reader(io.StringIO(text, newline=""), strict=True)]
                except csv.Error as error:
                    raise ValueError from error
            """,
            "split": """
            def read_table(text):
                return [line.split(",") for line in text.splitlines()]
            """,
            "a row after the last line break": But("while at < len(text) or row:", "while text and at <= len(text):"),
            "an empty field at the end is lost": But("at < len(text) or row", "at < len(text)"),
            "an open quote ends with the text": But('raise ValueError("a quote is never closed")', "quote = len(text)"),
            "what follows a quote is dropped": But(
                'raise ValueError("something follows a quote")',
                'at = min(i for i in range(at, len(text) + 1) if text[i : i + 1] in ("", ",", "\\n"))',
            ),
            "spaces are cut off": But("field = text[start:at]", "field = text[start:at].strip(' ')"),
        },
    ),
}
