"""Programs for the problems about dynamic programming."""

from tests.problems.solution import But, Solution

SOLUTIONS = {
    "ways_up": Solution(
        right="""
        def ways_up(steps, broken):
            before, here = 0, 1
            for step in range(1, steps + 1):
                before, here = here, 0 if step in broken else before + here
            return here
        """,
        wrong={
            "no way for no steps": But("return here", "return here if steps else 0"),
            "the ground can be broken": But("before, here = 0, 1", "before, here = 0, 0 if 0 in broken else 1"),
            "the top is never broken": But("step in broken else", "step in broken and step < steps else"),
            "two ways to step 1": But("before, here = 0, 1", "before, here = 1, 1"),
            "broken steps are left out of the count": But(
                "0 if step in broken else before + here", "here if step in broken else before + here"
            ),
            "recursion without memory": """
            def ways_up(steps, broken):
                if steps <= 0:
                    return int(steps == 0)
                if steps in broken:
                    return 0
                return ways_up(steps - 1, broken) + ways_up(steps - 2, broken)
            """,
        },
    ),
    "fewest_coins": Solution(
        right="""
        def fewest_coins(coins, amount):
            values = sorted(set(coins), reverse=True)
            count = [0] + [None] * amount
            for total in range(1, amount + 1):
                ways = [count[total - one] for one in values if one <= total]
                fewest = min((way for way in ways if way is not None), default=None)
                count[total] = None if fewest is None else fewest + 1
            if count[amount] is None:
                return None
            chosen = []
            while amount:
                coin = next(
                    one for one in values if one <= amount and count[amount - one] == count[amount] - 1
                )
                chosen.append(coin)
                amount -= coin
            return chosen
        """,
        wrong={
            "the largest coin that fits": """
            def fewest_coins(coins, amount):
                chosen = []
                for coin in sorted(coins, reverse=True):
                    while coin <= amount:
                        chosen.append(coin)
                        amount -= coin
                return chosen if amount == 0 else None
            """,
            "the smallest coins of equals": But("sorted(set(coins), reverse=True)", "sorted(set(coins))"),
            "how many, not which": But("    chosen = []\n", "    return count[amount]\n    chosen = []\n"),
            "an empty list where there is none": But("        return None\n", "        return []\n"),
            "each coin once": """
            def fewest_coins(coins, amount):
                best = {0: []}
                for coin in sorted(coins, reverse=True):
                    for total, chosen in list(best.items()):
                        if total + coin <= amount and len(chosen) + 1 < len(best.get(total + coin, [0] * 999)):
                            best[total + coin] = chosen + [coin]
                return best.get(amount)
            """,
            "the argument is sorted": But(
                "values = sorted(set(coins), reverse=True)", "coins.sort(reverse=True)\n    values = coins"
            ),
            "recursion": """
            from functools import lru_cache

            def fewest_coins(coins, amount):
                values = sorted(set(coins), reverse=True)

                @lru_cache(None)
                def best(left):
                    if left == 0:
                        return []
                    found = None
                    for coin in values:
                        if coin <= left and (rest := best(left - coin)) is not None:
                            if found is None or len(rest) + 1 < len(found):
                                found = [coin] + rest
                    return found

                return best(amount)
            """,
        },
    ),
    "best_jobs": Solution(
        right="""
        from bisect import bisect_right

        def best_jobs(jobs):
            ends, best = [], [0]
            for start, end, pay in sorted(jobs, key=lambda job: job[1]):
                before = bisect_right(ends, start)
                best.append(max(best[-1], best[before] + pay))
                ends.append(end)
            return best[-1]
        """,
        wrong={
            "a job may not start when another one ends": But(
                "bisect_right(ends, start)", "__import__('bisect').bisect_left(ends, start)"
            ),
            "the best paid first": """
            def best_jobs(jobs):
                done = []
                for start, end, pay in sorted(jobs, key=lambda job: -job[2]):
                    if all(end <= other[0] or other[1] <= start for other in done):
                        done.append((start, end, pay))
                return sum(job[2] for job in done)
            """,
            "the earliest end first": """
            def best_jobs(jobs):
                total, free = 0, None
                for start, end, pay in sorted(jobs, key=lambda job: job[1]):
                    if free is None or start >= free:
                        total, free = total + pay, end
                return total
            """,
            "the job before is the one to join": But(
                "best[before] + pay", "best[before] + pay if before == len(ends) else pay"
            ),
            "not sorted": But("sorted(jobs, key=lambda job: job[1])", "jobs"),
            "sorted by start": But("key=lambda job: job[1]", "key=lambda job: job[0]"),
            "every pair": """
            def best_jobs(jobs):
                ordered = sorted(jobs, key=lambda job: job[1])
                best = []
                for at, (start, end, pay) in enumerate(ordered):
                    best.append(pay + max([best[k] for k in range(at) if ordered[k][1] <= start], default=0))
                return max(best, default=0)
            """,
            "a table of all times": """
            def best_jobs(jobs):
                if not jobs:
                    return 0
                first = min(job[0] for job in jobs)
                table = [0] * (max(job[1] for job in jobs) - first + 1)
                for time in range(1, len(table)):
                    table[time] = table[time - 1]
                    for start, end, pay in jobs:
                        if end - first == time:
                            table[time] = max(table[time], table[start - first] + pay)
                return table[-1]
            """,
        },
    ),
    "edit_cost": Solution(
        right="""
        def edit_cost(source, target):
            older, old = None, [2 * at for at in range(len(target) + 1)]
            for i, a in enumerate(source, 1):
                row = [2 * i]
                for j, b in enumerate(target, 1):
                    cost = min(old[j] + 2, row[j - 1] + 2, old[j - 1] + (0 if a == b else 3))
                    if i > 1 and j > 1 and a == target[j - 2] and b == source[i - 2]:
                        cost = min(cost, older[j - 2] + 2)
                    row.append(cost)
                older, old = old, row
            return old[-1]
        """,
        wrong={
            "every step costs 1": """
            def edit_cost(source, target):
                old = list(range(len(target) + 1))
                for i, a in enumerate(source, 1):
                    row = [i]
                    for j, b in enumerate(target, 1):
                        row.append(min(old[j] + 1, row[-1] + 1, old[j - 1] + (a != b)))
                    old = row
                return old[-1]
            """,
            "nothing changes places": But("i > 1 and j > 1 and", "False and"),
            "replacing costs 2": But("else 3", "else 2"),
            "replacing is dropping and putting in": But("else 3", "else 4"),
            "changing places costs 4": But("older[j - 2] + 2", "older[j - 2] + 4"),
            "changing places only where all before is equal": But(
                "i > 1 and j > 1 and", "i == j > 1 and source[: i - 2] == target[: i - 2] and"
            ),
            "what changed places may be changed again": """
            def edit_cost(source, target):
                last = {}
                size = len(source) + len(target)
                table = {(-1, -1): 9 * size}
                for i in range(len(source) + 1):
                    table[i, -1], table[i, 0] = 9 * size, 2 * i
                for j in range(len(target) + 1):
                    table[-1, j], table[0, j] = 9 * size, 2 * j
                for i in range(1, len(source) + 1):
                    seen = 0
                    for j in range(1, len(target) + 1):
                        k, m = last.get(target[j - 1], 0), seen
                        same = source[i - 1] == target[j - 1]
                        if same:
                            seen = j
                        table[i, j] = min(
                            table[i - 1, j - 1] + (0 if same else 3),
                            table[i, j - 1] + 2,
                            table[i - 1, j] + 2,
                            table[k - 1, m - 1] + 2 * (i - k - 1) + 2 + 2 * (j - m - 1),
                        )
                    last[source[i - 1]] = i
                return table[len(source), len(target)]
            """,
            "recursion without memory": """
            def edit_cost(source, target):
                if not source or not target:
                    return 2 * (len(source) + len(target))
                cost = min(
                    edit_cost(source[1:], target) + 2,
                    edit_cost(source, target[1:]) + 2,
                    edit_cost(source[1:], target[1:]) + (0 if source[0] == target[0] else 3),
                )
                if len(source) > 1 and source[1::-1] == target[:2]:
                    cost = min(cost, edit_cost(source[2:], target[2:]) + 2)
                return cost
            """,
        },
    ),
}
