"""Programs for the problems about classes."""

from tests.problems.solution import But, Solution

SOLUTIONS = {
    "Purse": Solution(
        right="""
        class Purse:
            def __init__(self, cents=0):
                if cents < 0:
                    raise ValueError("an amount must not be negative")
                self._cents = cents
                self._history = []

            def put(self, cents):
                if cents < 0:
                    raise ValueError("an amount must not be negative")
                return self._add(cents)

            def take(self, cents):
                if not 0 <= cents <= self._cents:
                    raise ValueError("an amount must be there")
                return self._add(-cents)

            def _add(self, cents):
                self._cents += cents
                self._history.append(cents)
                return self._cents

            def balance(self):
                return self._cents

            def history(self):
                return list(self._history)
        """,
        wrong={
            "all purses share a history": But(
                "self._history = []", 'self._history = vars(Purse.put).setdefault("all", [])'
            ),
            "what is not there can be taken": But("not 0 <= cents <= self._cents", "cents < 0"),
            "the last cent stays": But("0 <= cents <= self._cents", "0 <= cents < self._cents"),
            "a negative amount at the start": But(
                "    def __init__(self, cents=0):\n        if cents < 0:",
                "    def __init__(self, cents=0):\n        if cents is None:",
            ),
            "a negative amount can be taken": But("0 <= cents <= self._cents", "cents <= self._cents"),
            "the start is part of the history": But("self._history = []", "self._history = [cents] if cents else []"),
            "amounts taken out are positive": But("self._history.append(cents)", "self._history.append(abs(cents))"),
            "put returns nothing": But("return self._add(cents)", "self._add(cents)"),
            "a failed call is in the history": But(
                'raise ValueError("an amount must be there")',
                'self._history.append(-cents)\n            raise ValueError("an amount must be there")',
            ),
        },
    ),
    "RecentCache": Solution(
        right="""
        class RecentCache:
            def __init__(self, capacity):
                self._capacity = capacity
                self._values = {}

            def put(self, key, value):
                self._values.pop(key, None)
                self._values[key] = value
                if len(self._values) > self._capacity:
                    del self._values[next(iter(self._values))]

            def get(self, key, default=None):
                if key not in self._values:
                    return default
                value = self._values[key] = self._values.pop(key)
                return value

            def keys(self):
                return list(self._values)

            def __len__(self):
                return len(self._values)
        """,
        wrong={
            "getting is no use": But("value = self._values[key] = self._values.pop(key)", "value = self._values[key]"),
            "putting again is no use": But("        self._values.pop(key, None)\n", ""),
            "None is nothing": But("if key not in self._values", "if self._values.get(key) is None"),
            "0 is nothing": But("return value\n", "return value or default\n"),
            "one too few": But("> self._capacity", ">= self._capacity"),
            "one too many": But("> self._capacity", "> self._capacity + 1"),
            "the newest one is dropped": But("next(iter(self._values))", "list(self._values)[-2]"),
            "the newest key first": But("list(self._values)", "list(self._values)[::-1]"),
            "room is made before a key is replaced": But(
                "        self._values.pop(key, None)\n",
                "        if len(self._values) == self._capacity:\n"
                "            del self._values[next(iter(self._values))]\n"
                "        self._values.pop(key, None)\n",
            ),
        },
    ),
    "Draft": Solution(
        right="""
        class Draft:
            def __init__(self, text=""):
                self._text = text
                self._done = []
                self._undone = []
                self._depth = 0
                self._before = text

            def text(self):
                return self._text

            def insert(self, at, piece):
                if not 0 <= at <= len(self._text):
                    raise IndexError("outside the text")
                self._change(self._text[:at] + piece + self._text[at:], bool(piece))

            def delete(self, at, count):
                if at < 0 or count < 0 or at + count > len(self._text):
                    raise IndexError("outside the text")
                piece = self._text[at : at + count]
                self._change(self._text[:at] + self._text[at + count :], bool(piece))
                return piece

            def _change(self, text, is_edit):
                if is_edit:
                    self._undone.clear()
                    if not self._depth:
                        self._done.append(self._text)
                    self._edited = True
                    self._text = text

            def undo(self):
                return self._move(self._done, self._undone)

            def redo(self):
                return self._move(self._undone, self._done)

            def _move(self, source, target):
                if self._depth:
                    raise ValueError("a group is open")
                if not source:
                    return False
                target.append(self._text)
                self._text = source.pop()
                return True

            def begin(self):
                if not self._depth:
                    self._before = self._text
                    self._edited = False
                self._depth += 1

            def end(self):
                if not self._depth:
                    raise ValueError("no group is open")
                self._depth -= 1
                if not self._depth and self._edited:
                    self._done.append(self._before)
        """,
        wrong={
            "an edit leaves what can be redone": But("            self._undone.clear()\n", ""),
            "nothing put in is an edit": But("bool(piece))\n\n    def delete", "True)\n\n    def delete"),
            "nothing deleted is an edit": But("bool(piece))\n        return piece", "True)\n        return piece"),
            "an empty group is an edit": But("if not self._depth and self._edited", "if not self._depth"),
            "an inner group ends the outer one": But("self._depth -= 1", "self._depth = 0"),
            "an inner group is an edit of its own": But("if not self._depth and self._edited", "if self._edited"),
            "undo within a group": But('            raise ValueError("a group is open")', "            return False"),
            "Python's positions from the end": But(
                "not 0 <= at <= len(self._text)", "not -len(self._text) <= at <= len(self._text)"
            ),
            "a deletion is cut short": But("at + count > len(self._text)", "at > len(self._text)"),
            "nothing can be appended": But("0 <= at <= len(self._text)", "0 <= at < len(self._text)"),
            "undo gives the text": But("return True", "return self._text"),
            "a group can be closed that is not open": But(
                '            raise ValueError("no group is open")', "            return"
            ),
        },
    ),
}
