"""Programs for the problems about graphs."""

from tests.problems.solution import But, Solution

SOLUTIONS = {
    "reachable": Solution(
        right="""
        def reachable(links, start):
            found = set()
            waiting = [start]
            while waiting:
                for page in links.get(waiting.pop(), ()):
                    if page not in found:
                        found.add(page)
                        waiting.append(page)
            return found
        """,
        wrong={
            "the start is always in it": But("found = set()", "found = {start}"),
            "the start is never in it": But("return found", "return found - {start}"),
            "every page has an entry": But("links.get(waiting.pop(), ())", "links[waiting.pop()]"),
            "one link only": But("waiting.append(page)", "pass"),
            "recursion": """
            def reachable(links, start, found=None):
                found = set() if found is None else found
                for page in links.get(start, ()):
                    if page not in found:
                        found.add(page)
                        reachable(links, page, found)
                return found
            """,
            "entries are made on the way": But("links.get(waiting.pop(), ())", "links.setdefault(waiting.pop(), [])"),
        },
    ),
    "fewest_hops": Solution(
        right="""
        from collections import defaultdict, deque

        def fewest_hops(roads, start, goal):
            near = defaultdict(list)
            for one, other in roads:
                near[one].append(other)
                near[other].append(one)
            hops = {start: 0}
            waiting = deque([start])
            while waiting:
                town = waiting.popleft()
                if town == goal:
                    return hops[town]
                for other in near[town]:
                    if other not in hops:
                        hops[other] = hops[town] + 1
                        waiting.append(other)
            return -1
        """,
        wrong={
            "one way only": But("near[other].append(one)", "near[other]"),
            "depth first": But("waiting.popleft()", "waiting.pop()"),
            "towns without roads are nowhere": But(
                "hops = {start: 0}", "if start not in near:\n        return -1\n    hops = {start: 0}"
            ),
            "towns are counted, not roads": But("{start: 0}", "{start: 1}"),
            "None where there is no way": But("return -1", "return None"),
            "whole paths, seen towns not kept": """
            def fewest_hops(roads, start, goal):
                paths = [[start]]
                while paths:
                    path = paths.pop(0)
                    if path[-1] == goal:
                        return len(path) - 1
                    for one, other in roads:
                        for here, there in ((one, other), (other, one)):
                            if here == path[-1] and there not in path:
                                paths.append(path + [there])
                return -1
            """,
        },
    ),
    "has_cycle": Solution(
        right="""
        def has_cycle(needs):
            done = set()
            for first in needs:
                open_tasks = set()
                stack = [(first, False)]
                while stack:
                    task, is_left = stack.pop()
                    if is_left:
                        open_tasks.discard(task)
                        done.add(task)
                    elif task in open_tasks:
                        return True
                    elif task not in done:
                        open_tasks.add(task)
                        stack.append((task, True))
                        stack += [(other, False) for other in needs.get(task, ())]
            return False
        """,
        wrong={
            "two ways to one task are a cycle": But("open_tasks.discard(task)", "pass"),
            "every task has an entry": But("needs.get(task, ())", "needs[task]"),
            "only the first task's": But("for first in needs:", "for first in list(needs)[:1]:"),
            "only tasks that need themselves directly": """
            def has_cycle(needs):
                return any(task in needs.get(other, ()) for task in needs for other in needs[task])
            """,
            "recursion": """
            def has_cycle(needs):
                done, current = set(), set()

                def visit(task):
                    if task in current:
                        return True
                    if task in done:
                        return False
                    current.add(task)
                    found = any(visit(other) for other in needs.get(task, ()))
                    current.discard(task)
                    done.add(task)
                    return found

                return any(visit(task) for task in needs)
            """,
            "what is done is looked at again": But("done.add(task)", "done.add(None)"),
        },
    ),
    "task_order": Solution(
        right="""
        import heapq

        def task_order(needs):
            waits = {}
            after = {}
            for task, before in needs.items():
                waits.setdefault(task, 0)
                for other in set(before):
                    waits[task] += 1
                    waits.setdefault(other, 0)
                    after.setdefault(other, []).append(task)
            ready = [task for task, count in waits.items() if count == 0]
            heapq.heapify(ready)
            order = []
            while ready:
                task = heapq.heappop(ready)
                order.append(task)
                for other in after.get(task, ()):
                    waits[other] -= 1
                    if waits[other] == 0:
                        heapq.heappush(ready, other)
            if len(order) < len(waits):
                raise ValueError("tasks need each other")
            return order
        """,
        wrong={
            "a list instead of a heap": """
            def task_order(needs):
                waits = {task: set(before) for task, before in needs.items()}
                for before in needs.values():
                    for task in before:
                        waits.setdefault(task, set())
                order = []
                ready = sorted(task for task in waits if not waits[task])
                while ready:
                    order += ready
                    for task in ready:
                        del waits[task]
                    for before in waits.values():
                        before.difference_update(ready)
                    ready = sorted(task for task in waits if not waits[task])
                if waits:
                    raise ValueError
                return order
            """,
            "the standard library's order": """
            from graphlib import CycleError, TopologicalSorter

            def task_order(needs):
                try:
                    return list(TopologicalSorter(needs).static_order())
                except CycleError:
                    raise ValueError from None
            """,
            "what is left out of a cycle": But(
                '    if len(order) < len(waits):\n        raise ValueError("tasks need each other")\n', ""
            ),
            "a cycle is a KeyError": But("raise ValueError(", "raise KeyError("),
            "tasks that are only named do not count": But(
                "return order", "return [task for task in order if task in needs]"
            ),
            "a need named twice must be met twice": But("waits[task] += 1", "waits[task] += before.count(other)"),
            "numbers as numbers": But(
                "heapq.heapify(ready)", "ready = sorted(ready, key=lambda task: (len(task), task))"
            ),
        },
    ),
    "bridges": Solution(
        right="""
        def bridges(count, cables):
            near = [[] for _ in range(count)]
            for number, (one, other) in enumerate(cables):
                near[one].append((other, number))
                near[other].append((one, number))
            seen = [0] * count
            low = [0] * count
            clock = 0
            found = []
            for root in range(count):
                if seen[root]:
                    continue
                clock += 1
                seen[root] = low[root] = clock
                stack = [(root, -1, iter(near[root]))]
                while stack:
                    here, came_by, ways = stack[-1]
                    for there, number in ways:
                        if number == came_by:
                            continue
                        if seen[there]:
                            low[here] = min(low[here], seen[there])
                        else:
                            clock += 1
                            seen[there] = low[there] = clock
                            stack.append((there, number, iter(near[there])))
                            break
                    else:
                        stack.pop()
                        if stack:
                            above = stack[-1][0]
                            low[above] = min(low[above], low[here])
                            if low[here] > seen[above]:
                                found.append((min(above, here), max(above, here)))
            return sorted(found)
        """,
        wrong={
            "the computer one came from is left out, not the cable": But(
                "if number == came_by:", "if len(stack) > 1 and there == stack[-2][0]:"
            ),
            "one part of the network": But("range(count):\n        if seen", "range(min(count, 1)):\n        if seen"),
            "ends in the order of the walk": But("(min(above, here), max(above, here))", "(above, here)"),
            "in the order in which they are found": But("return sorted(found)", "return found"),
            "a loop back to the top counts as critical": But("low[here] > seen[above]", "low[here] >= seen[above]"),
            "recursion": """
            def bridges(count, cables):
                near = [[] for _ in range(count)]
                for number, (a, b) in enumerate(cables):
                    near[a].append((b, number))
                    near[b].append((a, number))
                seen, low, found = {}, {}, []

                def visit(here, came_by):
                    seen[here] = low[here] = len(seen)
                    for there, number in near[here]:
                        if number == came_by:
                            continue
                        if there not in seen:
                            visit(there, number)
                            if low[there] > seen[here]:
                                found.append((min(here, there), max(here, there)))
                        low[here] = min(low[here], low[there])

                for root in range(count):
                    if root not in seen:
                        visit(root, -1)
                return sorted(found)
            """,
        },
    ),
}
