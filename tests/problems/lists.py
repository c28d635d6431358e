"""Programs for the problems about lists."""

from tests.problems.solution import But, Solution

SOLUTIONS = {
    "rotate_left": Solution(
        right="""
        def rotate_left(items, steps):
            at = steps % len(items) if items else 0
            return items[at:] + items[:at]
        """,
        wrong={
            "nothing to rotate divides by zero": But("steps % len(items) if items else 0", "steps % len(items)"),
            "more steps than elements": But("steps % len(items) if items else 0", "steps"),
            "to the right": But("steps % len(items)", "-steps % len(items)"),
            "the list itself where nothing moves": But("return items", "return items if not at else items"),
            "in place": """
            def rotate_left(items, steps):
                for _ in range(steps % len(items) if items else 0):
                    items.append(items.pop(0))
                return list(items)
            """,
        },
    ),
    "keep_last": Solution(
        right="""
        def keep_last(items):
            kept = []
            for item in reversed(items):
                if item not in kept:
                    kept.append(item)
            return kept[::-1]
        """,
        wrong={
            "the first one stays, and all is turned around": But("reversed(items)", "items"),
            "backwards": But("kept[::-1]", "kept"),
            "only what can be hashed": """
            def keep_last(items):
                return list(dict.fromkeys(reversed(items)))[::-1]
            """,
            "a later position of the first": """
            def keep_last(items):
                kept = []
                for item in items:
                    if item not in kept:
                        kept.append(item)
                return kept
            """,
            "compared as text": But("if item not in kept", "if str(item) not in map(str, kept)"),
            "the list itself is emptied": But("reversed(items)", "[items.pop() for _ in items[:]]"),
        },
    ),
    "sliding_max": Solution(
        right="""
        from collections import deque

        def sliding_max(values, size):
            if size < 1:
                raise ValueError("size must be at least 1")
            best = deque()
            out = []
            for at, value in enumerate(values):
                while best and values[best[-1]] <= value:
                    best.pop()
                best.append(at)
                if best[0] <= at - size:
                    best.popleft()
                if at >= size - 1:
                    out.append(values[best[0]])
            return out
        """,
        wrong={
            "the old maximum stays one too long": But("best[0] <= at - size", "best[0] < at - size"),
            "the first window is lost": But("at >= size - 1", "at >= size"),
            "a size of 0 is let through": But("size < 1", "size < 0"),
            "windows that are not full count": But("if at >= size - 1:", "if at >= 0:"),
            "the maximum of each window anew": """
            def sliding_max(values, size):
                if size < 1:
                    raise ValueError
                return [max(values[at : at + size]) for at in range(len(values) - size + 1)]
            """,
        },
    ),
    "count_inversions": Solution(
        right="""
        def count_inversions(values):
            def sort(part):
                if len(part) < 2:
                    return part, 0
                middle = len(part) // 2
                left, inside_left = sort(part[:middle])
                right, inside_right = sort(part[middle:])
                count = inside_left + inside_right
                merged = []
                at = 0
                for value in right:
                    while at < len(left) and left[at] <= value:
                        merged.append(left[at])
                        at += 1
                    count += len(left) - at
                    merged.append(value)
                return merged + left[at:], count

            return sort(values)[1]
        """,
        wrong={
            "equal numbers count": But("left[at] <= value", "left[at] < value"),
            "pairs of neighbours only": """
            def count_inversions(values):
                return sum(a > b for a, b in zip(values, values[1:]))
            """,
            "every pair": """
            def count_inversions(values):
                count = 0
                for i in range(len(values)):
                    for j in range(i + 1, len(values)):
                        if values[i] > values[j]:
                            count += 1
                return count
            """,
            "one per element that is taken from the right": But("count += len(left) - at", "count += at < len(left)"),
            "the list is sorted afterwards": But("return sort(values)[1]", "values[:], n = sort(values)\n    return n"),
        },
    ),
}
