"""Programs for the problems about intervals."""

from tests.problems.solution import But, Solution

SOLUTIONS = {
    "shared_days": Solution(
        right="""
        def shared_days(first, second):
            start = max(min(first), min(second))
            end = min(max(first), max(second))
            return max(end - start + 1, 0)
        """,
        wrong={
            "the last day does not count": But("end - start + 1", "end - start"),
            "negative where there is none": But("max(end - start + 1, 0)", "end - start + 1"),
            "pairs are in order": """
            def shared_days(first, second):
                return max(min(first[1], second[1]) - max(first[0], second[0]) + 1, 0)
            """,
            "a gap counts as well": But("max(end - start + 1, 0)", "abs(end - start) + 1"),
            "day by day": """
            def shared_days(first, second):
                days = [set(range(min(one), max(one) + 1)) for one in (first, second)]
                return len(days[0] & days[1])
            """,
        },
    ),
    "merge_spans": Solution(
        right="""
        def merge_spans(spans):
            merged = []
            for start, end in sorted(spans):
                if start == end:
                    continue
                if merged and start <= merged[-1][1]:
                    merged[-1] = merged[-1][0], max(merged[-1][1], end)
                else:
                    merged.append((start, end))
            return merged
        """,
        wrong={
            "spans that touch stay apart": But("start <= merged[-1][1]", "start < merged[-1][1]"),
            "the later span's end wins": But("max(merged[-1][1], end)", "end"),
            "empty spans stay": But("if start == end", "if start > end"),
            "not sorted": But("sorted(spans)", "spans"),
            "the argument is sorted": But(
                "for start, end in sorted(spans)", "spans.sort()\n    for start, end in spans"
            ),
            "neighbouring numbers touch": But("start <= merged[-1][1]", "start <= merged[-1][1] + 1"),
            "spans become lists": But("merged.append((start, end))", "merged.append([start, end])"),
        },
    ),
    "free_slots": Solution(
        right="""
        def free_slots(busy, day_start, day_end, length):
            slots = []
            free_from = day_start
            for start, end in [*sorted(busy), (day_end, day_end)]:
                until = min(start, day_end)
                if until - free_from >= length:
                    slots.append((free_from, until))
                free_from = max(free_from, end)
            return slots
        """,
        wrong={
            "a gap of exactly that length is too short": But(">= length", "> length"),
            "an appointment within another one opens a gap": But("max(free_from, end)", "end"),
            "gaps reach into the night": But("min(start, day_end)", "start"),
            "the evening is forgotten": But("[*sorted(busy), (day_end, day_end)]", "sorted(busy)"),
            "appointments are in order": But("*sorted(busy)", "*busy"),
            "the argument is sorted": But("*sorted(busy)", "*(busy.sort() or busy)"),
            "slots of just that length": But("(free_from, until)", "(free_from, free_from + length)"),
        },
    ),
    "busiest_stretch": Solution(
        right="""
        from collections import Counter

        def busiest_stretch(visits):
            steps = Counter()
            for arrival, departure in visits:
                steps[arrival] += 1
                steps[departure] -= 1
            moments = sorted(moment for moment, step in steps.items() if step)
            best = None
            present = 0
            for moment, until in zip(moments, moments[1:]):
                present += steps[moment]
                if best is None or present > best[0]:
                    best = present, moment, until
            return best
        """,
        wrong={
            "a change of visitors ends the stretch": But("in steps.items() if step)", "in steps.items())"),
            "the latest stretch": But("present > best[0]", "present >= best[0]"),
            "visitors are there when they leave": But("steps[departure] -= 1", "steps[departure + 1] -= 1"),
            "nobody is an error": But("best = None\n", "best = None if visits else visits[0]\n"),
            "only how many": But("return best", "return best and best[0]"),
            "arrivals first": """
            def busiest_stretch(visits):
                events = sorted([(a, -1) for a, _ in visits] + [(d, 1) for _, d in visits])
                best, present = None, 0
                for at, (moment, sign) in enumerate(events):
                    present -= sign
                    if best is None or present > best[0]:
                        until = next(m for m, s in events[at:] if s == 1)
                        best = present, moment, until
                return best
            """,
            "every moment": """
            def busiest_stretch(visits):
                if not visits:
                    return None
                first, last = min(a for a, _ in visits), max(d for _, d in visits)
                here = [sum(a <= t < d for a, d in visits) for t in range(first, last)]
                most = max(here)
                start = here.index(most)
                end = start
                while end < len(here) and here[end] == most:
                    end += 1
                return most, first + start, first + end
            """,
        },
    ),
}
