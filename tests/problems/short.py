"""Programs for the five short problems."""

from tests.problems.solution import But, Solution

SOLUTIONS = {
    "word_count": Solution(
        right="""
        def word_count(text):
            counts = {}
            for word in text.lower().split():
                counts[word] = counts.get(word, 0) + 1
            return counts
        """,
        wrong={
            "case matters": But(".lower()", ""),
            "only spaces part words": But(".split()", '.split(" ")'),
            "punctuation is cut off": But("counts[word] =", 'word = word.strip(".,")\n        counts[word] ='),
            "it starts at 0": But("counts.get(word, 0) + 1", "counts.get(word, -1) + 1"),
            "how many words": But("return counts", "return sum(counts.values())"),
            "letters": But("text.lower().split()", "text.lower()"),
        },
    ),
    "flatten": Solution(
        right="""
        def flatten(items):
            flat = []
            for item in items:
                if isinstance(item, list):
                    flat += flatten(item)
                else:
                    flat.append(item)
            return flat
        """,
        wrong={
            "one level": But("flat += flatten(item)", "flat += item"),
            "tuples as well": But("isinstance(item, list)", "isinstance(item, (list, tuple))"),
            "whatever can be gone through": But(
                "isinstance(item, list)", 'hasattr(item, "__iter__") and item not in ("ab", "cd", "")'
            ),
            "values that are false are lost": But("        else:\n", "        elif item:\n"),
            "inner lists first": But("flat += flatten(item)", "flat = flatten(item) + flat"),
            "the argument is used up": """
            def flatten(items):
                flat = []
                while items:
                    item = items.pop(0)
                    flat += flatten(item) if isinstance(item, list) else [item]
                return flat
            """,
        },
    ),
    "is_balanced": Solution(
        right="""
        def is_balanced(text):
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
            "nothing to close": But("if not stack or stack.pop()", "if stack.pop()"),
            "nothing to close is no fault": But(
                "not stack or stack.pop() != pairs[char]", "stack and stack.pop() != pairs[char]"
            ),
            "all brackets are of one kind": But("stack.pop() != pairs[char]", "not stack.pop()"),
            "how many of each": """
            def is_balanced(text):
                return all(text.count(a) == text.count(b) for a, b in ("()", "[]", "{}"))
            """,
            "a list, not a truth value": But("return not stack", "return stack"),
            "pairs are cut out until none is left": """
            def is_balanced(text):
                while any(pair in text for pair in ("()", "[]", "{}")):
                    for pair in ("()", "[]", "{}"):
                        text = text.replace(pair, "")
                return text == ""
            """,
        },
    ),
    "to_roman": Solution(
        right="""
        def to_roman(number):
            if not 1 <= number <= 3999:
                raise ValueError("the number must be from 1 to 3999")
            values = (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1)
            signs = ("M", "CM", "D", "CD", "C", "XC", "L", "XL", "X", "IX", "V", "IV", "I")
            text = ""
            for value, sign in zip(values, signs):
                text += sign * (number // value)
                number %= value
            return text
        """,
        wrong={
            "four equal signs": """
            def to_roman(number):
                if not 1 <= number <= 3999:
                    raise ValueError
                text = ""
                for value, sign in zip((1000, 500, 100, 50, 10, 5, 1), "MDCLXVI"):
                    text += sign * (number // value)
                    number %= value
                return text
            """,
            "no sign for 900 and 400": But('("M", "CM", "D", "CD",', '("M", "DCCCC", "D", "CCCC",'),
            "0 is nothing": But("not 1 <= number", "not 0 <= number"),
            "4000 is four thousand": But("<= 3999", "<= 4999"),
            "3999 is too much": But("<= 3999", "< 3999"),
            "small letters": But("return text", "return text.lower()"),
            "each sign once": But("sign * (number // value)", "sign * (number >= value)"),
        },
    ),
    "longest_run": Solution(
        right="""
        def longest_run(values):
            best = run = 0
            for at, value in enumerate(values):
                run = run + 1 if at and value == values[at - 1] else 1
                best = max(best, run)
            return best
        """,
        wrong={
            "the most frequent": """
            def longest_run(values):
                return max((values.count(value) for value in values), default=0)
            """,
            "the last run is forgotten": """
            def longest_run(values):
                best, run = 0, 1
                for one, other in zip(values, values[1:]):
                    if one == other:
                        run += 1
                    else:
                        best, run = max(best, run), 1
                return best
            """,
            "nothing is a run of one": """
            def longest_run(values):
                best = run = 1
                for one, other in zip(values, values[1:]):
                    run = run + 1 if one == other else 1
                    best = max(best, run)
                return best
            """,
            "nothing is before the first": """
            def longest_run(values):
                best = run = 0
                last = None
                for value in values:
                    run = run + 1 if value == last else 0
                    best, last = max(best, run), value
                return best
            """,
            "which value, not how many": But("return best", "return max(values, key=values.count) if values else 0"),
            "the last run": But("return best", "return run"),
        },
    ),
}
