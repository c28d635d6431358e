"""Programs for the problems about dates."""

from tests.problems.solution import But, Solution

SOLUTIONS = {
    "weekday_counts": Solution(
        right="""
        import calendar

        def weekday_counts(year, month):
            first, length = calendar.monthrange(year, month)
            counts = [4] * 7
            for extra in range(length - 28):
                counts[(first + extra) % 7] += 1
            return counts
        """,
        wrong={
            "the week begins on Sunday": But("(first + extra) % 7", "(first + extra + 1) % 7"),
            "every month has 30 days": But("length - 28", "2"),
            "every fourth year has a leap day": But(
                "length - 28", "length - 28 + (month == 2 and year % 4 == 0 and length == 28)"
            ),
            "no leap days": But("length - 28", "(length - 28) * (month != 2)"),
            "the days are counted from the last one": But("(first + extra) % 7", "(first - extra) % 7"),
        },
    ),
    "nth_weekday": Solution(
        right="""
        import calendar
        from datetime import date

        def nth_weekday(year, month, weekday, n):
            if n == 0:
                raise ValueError("n must not be 0")
            first, length = calendar.monthrange(year, month)
            days = list(range(1 + (weekday - first) % 7, length + 1, 7))
            at = n - 1 if n > 0 else len(days) + n
            return date(year, month, days[at]).isoformat() if 0 <= at < len(days) else None
        """,
        wrong={
            "0 is the last one": But("if n == 0", "if n is None"),
            "a fifth one is an error": But("if 0 <= at < len(days) else None", "if True else None"),
            "before the first one it starts at the end again": But("0 <= at < len(days)", "at < len(days)"),
            "no leading zeros": But("date(year, month, days[at]).isoformat()", 'f"{year}-{month}-{days[at]}"'),
            "the year has no leading zeros": But(
                "date(year, month, days[at]).isoformat()", 'f"{year}-{month:02}-{days[at]:02}"'
            ),
            "the week begins on Sunday": But("(weekday - first) % 7", "(weekday - first - 1) % 7"),
            "weeks from the first day of the month": But(
                "range(1 + (weekday - first) % 7,", "range(1 + abs(weekday - first),"
            ),
        },
    ),
    "add_workdays": Solution(
        right="""
        from datetime import date, timedelta

        def add_workdays(day, count, holidays):
            free = {date.fromisoformat(one) for one in holidays}
            step = timedelta(days=1 if count > 0 else -1)
            here = date.fromisoformat(day)
            left = abs(count)
            while left:
                here += step
                left -= here.weekday() < 5 and here not in free
            return here.isoformat()
        """,
        wrong={
            "holidays are workdays": But(" and here not in free", ""),
            "only forward": But("1 if count > 0 else -1", "1"),
            "Saturday is a workday": But("here.weekday() < 5", "here.weekday() < 6"),
            "the day itself counts": But(
                "left = abs(count)", "left = abs(count) - (count > 0 and here.weekday() < 5 and here not in free)"
            ),
            "0 leads to a workday": But("while left:", "while left > 0 or here.weekday() > 4:"),
            "weeks of five days, then holidays": """
            from datetime import date, timedelta

            def add_workdays(day, count, holidays):
                here = date.fromisoformat(day)
                step = timedelta(days=1 if count > 0 else -1)
                start = here
                for _ in range(abs(count)):
                    here += step
                    while here.weekday() > 4:
                        here += step
                for one in holidays:
                    if min(start, here) <= date.fromisoformat(one) <= max(start, here):
                        here += step
                return here.isoformat()
            """,
            "holidays in a list of their own for each day": But(
                "here not in free", "here not in [date.fromisoformat(one) for one in holidays]"
            ),
        },
    ),
}
