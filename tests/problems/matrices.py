"""Programs for the problems about matrices."""

from tests.problems.solution import But, Solution

SOLUTIONS = {
    "border_sum": Solution(
        right="""
        def border_sum(matrix):
            if not matrix:
                return 0
            total = sum(map(sum, matrix))
            inner = sum(sum(row[1:-1]) for row in matrix[1:-1])
            return total - inner
        """,
        wrong={
            "corners twice": """
            def border_sum(matrix):
                if not matrix or not matrix[0]:
                    return 0
                columns = sum(row[0] + row[-1] for row in matrix)
                return sum(matrix[0]) + sum(matrix[-1]) + columns
            """,
            "a single row twice": """
            def border_sum(matrix):
                if not matrix or not matrix[0]:
                    return 0
                sides = sum(row[0] + (row[-1] if len(row) > 1 else 0) for row in matrix[1:-1])
                return sum(matrix[0]) + sum(matrix[-1]) + sides
            """,
            "a single column twice": """
            def border_sum(matrix):
                if not matrix or not matrix[0]:
                    return 0
                ends = sum(matrix[0]) + (sum(matrix[-1]) if len(matrix) > 1 else 0)
                return ends + sum(row[0] + row[-1] for row in matrix[1:-1])
            """,
            "rows without numbers": But("    total =", "    assert matrix[0][0] is not None\n    total ="),
            "a set of values": """
            def border_sum(matrix):
                inner = {x for row in matrix[1:-1] for x in row[1:-1]}
                return sum(x for row in matrix for x in row if x not in inner)
            """,
        },
    ),
    "spiral": Solution(
        right="""
        def spiral(matrix):
            rows = [list(row) for row in matrix]
            out = []
            while rows and rows[0]:
                out += [row.pop(0) for row in rows]
                # turned clockwise, the next side to walk along is the first column again
                rows = [list(column) for column in zip(*rows[::-1])]
            return out
        """,
        wrong={
            "to the right first": """
            def spiral(matrix):
                rows = [list(row) for row in matrix]
                out = []
                while rows:
                    out += rows.pop(0)
                    rows = [list(column) for column in zip(*rows)][::-1]
                return out
            """,
            "turned the other way": But("zip(*rows[::-1])]", "zip(*rows)][::-1]"),
            "the argument is used up": But("[list(row) for row in matrix]", "matrix"),
            "empty rows are an error": But("while rows and rows[0]", "while rows"),
            "a middle row or column is met twice": """
            def spiral(matrix):
                out = []
                if not matrix or not matrix[0]:
                    return out
                top, bottom, left, right = 0, len(matrix) - 1, 0, len(matrix[0]) - 1
                while top <= bottom and left <= right:
                    out += [matrix[row][left] for row in range(top, bottom + 1)]
                    out += [matrix[bottom][column] for column in range(left + 1, right + 1)]
                    out += [matrix[row][right] for row in range(bottom - 1, top - 1, -1)]
                    out += [matrix[top][column] for column in range(right - 1, left, -1)]
                    top, bottom, left, right = top + 1, bottom - 1, left + 1, right - 1
                return out
            """,
            "only squares": But(
                "while rows and rows[0]",
                "while rows and len(rows) <= len(matrix) and rows[0] and len(rows[0]) <= len(matrix)",
            ),
        },
    ),
    "determinant": Solution(
        right="""
        def determinant(matrix):
            rows = [list(row) for row in matrix]
            size = len(rows)
            if any(len(row) != size for row in rows):
                raise ValueError("the matrix must be square")
            sign, last = 1, 1
            for at in range(size):
                pivot = next((row for row in range(at, size) if rows[row][at]), None)
                if pivot is None:
                    return 0
                if pivot != at:
                    rows[at], rows[pivot] = rows[pivot], rows[at]
                    sign = -sign
                for row in range(at + 1, size):
                    for column in range(at + 1, size):
                        rows[row][column] = (
                            rows[row][column] * rows[at][at] - rows[row][at] * rows[at][column]
                        ) // last
                last = rows[at][at]
            return sign * last
        """,
        wrong={
            "a zero on the diagonal ends it": But("if pivot is None", "if not rows[at][at]"),
            "rows that change places keep the sign": But("sign = -sign", "pass"),
            "the argument is changed": But("[list(row) for row in matrix]", "matrix"),
            "no rows are nothing": But("sign, last = 1, 1", "sign, last = 1, 1 if size else 0"),
            "the shape is not looked at": But('raise ValueError("the matrix must be square")', "return 0"),
            "floats": But(") // last", ") / last"),
            "by minors": """
            def determinant(matrix):
                if any(len(row) != len(matrix) for row in matrix):
                    raise ValueError
                if not matrix:
                    return 1
                return sum(
                    (-1) ** at * value * determinant([row[:at] + row[at + 1 :] for row in matrix[1:]])
                    for at, value in enumerate(matrix[0]) if value
                )
            """,
            "never divided, so that it is a multiple": But(") // last", ")"),
        },
    ),
}
