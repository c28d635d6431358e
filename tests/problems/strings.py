"""Programs for the problems about strings."""

from tests.problems.solution import But, Solution

SOLUTIONS = {
    "mask_digits": Solution(
        right="""
        def mask_digits(text, keep):
            digits = [at for at, char in enumerate(text) if char in "0123456789"]
            hidden = set(digits[: max(len(digits) - keep, 0)])
            return "".join("*" if at in hidden else char for at, char in enumerate(text))
        """,
        wrong={
            "digits of other scripts are digits": But('char in "0123456789"', "char.isdigit()"),
            "keeping 0 keeps all": But(
                "digits[: max(len(digits) - keep, 0)]", "digits[: -keep] if keep else digits[:0]"
            ),
            "a negative slice where keep is too large": But("max(len(digits) - keep, 0)", "len(digits) - keep"),
            "the first ones stay": But("digits[: max(len(digits) - keep, 0)]", "digits[keep:]"),
            "the last characters are kept, not the last digits": """
            def mask_digits(text, keep):
                cut = max(len(text) - keep, 0)
                return "".join("*" if c in "0123456789" else c for c in text[:cut]) + text[cut:]
            """,
        },
    ),
    "common_suffix": Solution(
        right="""
        def common_suffix(words):
            if not words:
                return ""
            suffix = words[0]
            for word in words[1:]:
                while not word.endswith(suffix):
                    suffix = suffix[1:]
            return suffix
        """,
        wrong={
            "no words are an error": But('    if not words:\n        return ""\n', ""),
            "the longest common prefix": But("not word.endswith(suffix)", "not word.startswith(suffix)"),
            "only the first two words": But("words[1:]", "words[1:2]"),
            "case does not matter": But("word.endswith(suffix)", "word.lower().endswith(suffix.lower())"),
            "the result is backwards": """
            def common_suffix(words):
                out = ""
                for chars in zip(*[word[::-1] for word in words]):
                    if len(set(chars)) > 1:
                        break
                    out += chars[0]
                return out
            """,
            "it does not stop at a difference": """
            def common_suffix(words):
                columns = zip(*[word[::-1] for word in words])
                return "".join(column[0] for column in columns if len(set(column)) == 1)[::-1]
            """,
        },
    ),
    "title_slug": Solution(
        right="""
        import re

        def title_slug(title):
            return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
        """,
        wrong={
            "a hyphen for each character": But("]+", "]"),
            "hyphens at the ends": But('.strip("-")', ""),
            "every letter of Unicode, and underscores": But("[^a-z0-9]+", r"\W+"),
            "capitals are dropped before they are lowered": """
            import re

            def title_slug(title):
                return re.sub(r"[^a-z0-9]+", "-", title).strip("-").lower()
            """,
            "only words between spaces": """
            def title_slug(title):
                return "-".join(word.strip("?!,.'") for word in title.lower().split())
            """,
        },
    ),
    "wrap_words": Solution(
        right="""
        def wrap_words(text, width):
            lines = []
            for word in text.split():
                if lines and len(lines[-1]) + 1 + len(word) <= width:
                    lines[-1] += " " + word
                else:
                    lines.append(word)
            return lines
        """,
        wrong={
            "the space does not count": But("len(lines[-1]) + 1 + len(word)", "len(lines[-1]) + len(word)"),
            "a full line is too long": But("<= width", "< width"),
            "only spaces part words": But("text.split()", 'text.split(" ")'),
            "textwrap breaks long words": """
            import textwrap

            def wrap_words(text, width):
                return textwrap.wrap(text, width)
            """,
            "textwrap breaks at hyphens": """
            import textwrap

            def wrap_words(text, width):
                return textwrap.wrap(" ".join(text.split()), width, break_long_words=False)
            """,
            "an empty first line before a long word": """
            def wrap_words(text, width):
                lines, line = [], ""
                for word in text.split():
                    if len(line) + (1 if line else 0) + len(word) <= width:
                        line += (" " if line else "") + word
                    else:
                        lines.append(line)
                        line = word
                return lines + [line] if line else lines
            """,
        },
    ),
    "smallest_window": Solution(
        right="""
        from collections import Counter

        def smallest_window(text, needed):
            lacking = Counter(needed)
            missing = len(needed)
            best = None
            start = 0
            for end, char in enumerate(text, 1):
                if lacking[char] > 0:
                    missing -= 1
                lacking[char] -= 1
                while needed and missing == 0:
                    if best is None or end - start < best[1] - best[0]:
                        best = start, end
                    lacking[text[start]] += 1
                    if lacking[text[start]] > 0:
                        missing += 1
                    start += 1
            return text[best[0] : best[1]] if best else ""
        """,
        wrong={
            "the last of equals": But("end - start < best", "end - start <= best"),
            "each character once is enough": But(
                "def smallest_window(text, needed):\n",
                "def smallest_window(text, needed):\n    needed = ''.join(set(needed))\n",
            ),
            "nothing needed is found everywhere": But(
                'return text[best[0] : best[1]] if best else ""', "return text[best[0] : best[1]] if best else text[:1]"
            ),
            "the first window, not the shortest": But(
                "best is None or end - start < best[1] - best[0]", "best is None"
            ),
            "every pair of ends": """
            from collections import Counter

            def smallest_window(text, needed):
                need = Counter(needed)
                for size in range(len(needed), len(text) + 1):
                    for start in range(len(text) - size + 1):
                        piece = text[start : start + size]
                        if needed and not need - Counter(piece):
                            return piece
                return ""
            """,
        },
    ),
}
