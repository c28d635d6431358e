"""Programs for the problems that simulate something."""

from tests.problems.solution import But, Solution

SOLUTIONS = {
    "walk": Solution(
        right="""
        import re

        def walk(commands):
            if not re.fullmatch(r"([0-9]*[FB]|[LR])*", commands):
                raise ValueError("not a command")
            x, y, facing = 0, 0, 0
            for count, command in re.findall(r"([0-9]*)([FBLR])", commands):
                if command in "LR":
                    facing = (facing + (1 if command == "R" else -1)) % 4
                    continue
                steps = int(count or "1") * (1 if command == "F" else -1)
                x += steps * (0, 1, 0, -1)[facing]
                y += steps * (1, 0, -1, 0)[facing]
            return x, y, "NESW"[facing]
        """,
        wrong={
            "right is left": But('command == "R"', 'command == "L"'),
            "back turns around": But(
                '"1") * (1 if command == "F" else -1)',
                '"1")\n        facing = facing if command == "F" else (facing + 2) % 4',
            ),
            "0 steps are one": But('int(count or "1")', '(int(count or "1") or 1)'),
            "one digit": But('r"([0-9]*)([FBLR])"', 'r"([0-9]?)([FBLR])"'),
            "what is no command is skipped": But('raise ValueError("not a command")', "pass"),
            "y grows to the south": But("(1, 0, -1, 0)", "(-1, 0, 1, 0)"),
            "a number before a turn": But("[0-9]*[FB]|[LR]", "[0-9]*[FBLR]"),
            "digits of other scripts": But("[0-9]*[FB]", r"\d*[FB]"),
            "step by step": But(
                "x += steps * (0, 1, 0, -1)[facing]",
                "x += sum((0, 1, 0, -1)[facing] * (1 if steps > 0 else -1) for _ in range(abs(steps)))",
            ),
        },
    ),
    "life_step": Solution(
        right="""
        from collections import Counter

        def life_step(cells):
            near = Counter(
                (x + dx, y + dy)
                for x, y in cells
                for dx in (-1, 0, 1)
                for dy in (-1, 0, 1)
                if dx or dy
            )
            return {cell for cell, count in near.items() if count == 3 or (count == 2 and cell in cells)}
        """,
        wrong={
            "a cell is its own neighbour": But("if dx or dy", "if True"),
            "four neighbours": But("if dx or dy", "if bool(dx) != bool(dy)"),
            "two bring a cell to life": But("(count == 2 and cell in cells)", "count == 2"),
            "nothing comes to life": But(
                "count == 3 or (count == 2 and cell in cells)", "count in (2, 3) and cell in cells"
            ),
            "four are not too many": But("count == 3 or", "count == 3 or (count == 4 and cell in cells) or"),
            "a board with borders": But(
                "for cell, count in near.items()", "for cell, count in near.items() if min(cell) >= 0"
            ),
            "cells change while they are counted": """
            def life_step(cells):
                for x, y in sorted(cells):
                    near = sum((x + dx, y + dy) in cells for dx in (-1, 0, 1) for dy in (-1, 0, 1)) - 1
                    if near not in (2, 3):
                        cells.discard((x, y))
                return cells
            """,
            "every place of the board": """
            def life_step(cells):
                if not cells:
                    return set()
                xs, ys = [x for x, _ in cells], [y for _, y in cells]
                found = set()
                for x in range(min(0, *xs) - 1, max(0, *xs) + 2):
                    for y in range(min(0, *ys) - 1, max(0, *ys) + 2):
                        near = sum((x + i, y + j) in cells for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j)
                        if near == 3 or near == 2 and (x, y) in cells:
                            found.add((x, y))
                return found
            """,
        },
    ),
    "take_turns": Solution(
        right="""
        from collections import deque

        def take_turns(tasks, slice):
            coming = deque(sorted(tasks, key=lambda task: task[1]))
            queue = deque()
            ends = []
            now = 0
            while coming or queue:
                if not queue:
                    now = max(now, coming[0][1])
                while coming and coming[0][1] <= now:
                    name, _, work = coming.popleft()
                    queue.append((name, work))
                name, work = queue.popleft()
                now += min(work, slice)
                while coming and coming[0][1] <= now:
                    late, _, more = coming.popleft()
                    queue.append((late, more))
                if work > slice:
                    queue.append((name, work - slice))
                else:
                    ends.append((name, now))
            return ends
        """,
        wrong={
            "who arrives just then is behind": But(
                "coming[0][1] <= now:\n            late", "coming[0][1] < now:\n            late"
            ),
            "who arrives during a turn is behind": But(
                "while coming and coming[0][1] <= now:\n            late", "while False:\n            late"
            ),
            "sorted by name as well": But("key=lambda task: task[1]", "key=lambda task: (task[1], task[0])"),
            "not sorted": But("sorted(tasks, key=lambda task: task[1])", "tasks"),
            "every turn is whole": But("min(work, slice)", "slice"),
            "no waiting": But("now = max(now, coming[0][1])", "coming[0] = (coming[0][0], now, coming[0][2])"),
            "one task after the other": But("if work > slice", "if False"),
            "in the order of names": But("return ends", "return sorted(ends)"),
            "the argument is sorted": But(
                "coming = deque(sorted(tasks, key=lambda task: task[1]))",
                "tasks.sort(key=lambda task: task[1])\n    coming = deque(tasks)",
            ),
            "second by second": """
            def take_turns(tasks, slice):
                now, queue, ends, left = 0, [], [], sum(task[2] for task in tasks)
                coming = sorted(tasks, key=lambda task: task[1])
                current = None
                while left:
                    while coming and coming[0][1] <= now:
                        queue.append([coming[0][0], coming.pop(0)[2]])
                    if current and (current[1] == 0 or used == slice):
                        if current[1]:
                            queue.append(current)
                        current = None
                    if current is None and queue:
                        current, used = queue.pop(0), 0
                    now += 1
                    if current:
                        current[1] -= 1
                        left -= 1
                        used += 1
                        if not current[1]:
                            ends.append((current[0], now))
                return ends
            """,
        },
    ),
}
