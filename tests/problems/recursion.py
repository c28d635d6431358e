"""Programs for the problems about recursion."""

from tests.problems.solution import But, Solution

SOLUTIONS = {
    "nested_depth": Solution(
        right="""
        def nested_depth(value):
            if not isinstance(value, list):
                return 0
            return 1 + max(map(nested_depth, value), default=0)
        """,
        wrong={
            "an empty list is an error": But(", default=0", ""),
            "an empty list has depth 0": But(
                "if not isinstance(value, list)", "if not isinstance(value, list) or not value"
            ),
            "tuples count": But("isinstance(value, list)", "isinstance(value, (list, tuple))"),
            "only the first element": But("map(nested_depth, value)", "map(nested_depth, value[:1])"),
            "brackets in the text": """
            def nested_depth(value):
                deepest = depth = 0
                for char in repr(value):
                    depth += (char == "[") - (char == "]")
                    deepest = max(deepest, depth)
                return deepest
            """,
        },
    ),
    "partitions": Solution(
        right="""
        def partitions(n):
            def split(left, largest):
                if left == 0:
                    return [[]]
                ways = []
                for first in range(min(left, largest), 0, -1):
                    ways += [[first, *rest] for rest in split(left - first, first)]
                return ways

            return split(n, n)
        """,
        wrong={
            "order matters": But("split(left - first, first)", "split(left - first, left)"),
            "smallest first": But("range(min(left, largest), 0, -1)", "range(1, min(left, largest) + 1)"),
            "no number twice": But("split(left - first, first)", "split(left - first, first - 1)"),
            "no way for 0": But("return split(n, n)", "return split(n, n) if n else []"),
            "the number itself is no sum": But("return split(n, n)", "return split(n, n)[n > 1 :]"),
            "tuples": But("[first, *rest]", "(first, *rest)"),
        },
    ),
    "place_queens": Solution(
        right="""
        def place_queens(size, blocked):
            def place(row, columns, rising, falling):
                if row == size:
                    return 1
                count = 0
                for column in range(size):
                    if (row, column) in blocked or column in columns:
                        continue
                    if row + column in rising or row - column in falling:
                        continue
                    count += place(
                        row + 1, columns | {column}, rising | {row + column}, falling | {row - column}
                    )
                return count

            return place(0, frozenset(), frozenset(), frozenset())
        """,
        wrong={
            "rooks": But("if row + column in rising or row - column in falling", "if False"),
            "one diagonal is forgotten": But(
                "row + column in rising or row - column in falling", "row + column in rising"
            ),
            "rows are counted from 1": But("(row, column) in blocked", "(row + 1, column) in blocked"),
            "blocked squares are only looked at in the first row": But(
                "(row, column) in blocked", "(row == 0 and (0, column) in blocked)"
            ),
            "no way on an empty board": But("return place(", "return size and place("),
            "it stops at the first way": But("return count\n", "return min(count, 1)\n"),
        },
    ),
}
