"""Programs for the problems about dictionaries."""

from tests.problems.solution import But, Solution

SOLUTIONS = {
    "invert_index": Solution(
        right="""
        def invert_index(documents):
            found = {}
            for name in sorted(documents):
                for word in set(documents[name].lower().split()):
                    found.setdefault(word, []).append(name)
            return found
        """,
        wrong={
            "a name for each occurrence": But(
                "set(documents[name].lower().split())", "documents[name].lower().split()"
            ),
            "names as they come": But("sorted(documents)", "documents"),
            "case matters": But(".lower()", ""),
            "only spaces part words": But(".split()", '.split(" ")'),
            "punctuation is cut off": But("found.setdefault(word, [])", "found.setdefault(word.strip('.,!?'), [])"),
            "sets, not lists": But(
                "found.setdefault(word, []).append(name)", "found.setdefault(word, set()).add(name)"
            ),
            "a default for words that are nowhere": """
            from collections import defaultdict

            def invert_index(documents):
                found = defaultdict(list)
                for name in sorted(documents):
                    for word in set(documents[name].lower().split()):
                        found[word].append(name)
                return found
            """,
        },
    ),
    "merge_counts": Solution(
        right="""
        def merge_counts(first, second):
            keys = list(first) + [key for key in second if key not in first]
            sums = {key: first.get(key, 0) + second.get(key, 0) for key in keys}
            return {key: value for key, value in sums.items() if value}
        """,
        wrong={
            "counters drop negative sums": """
            from collections import Counter

            def merge_counts(first, second):
                return dict(Counter(first) + Counter(second))
            """,
            "zeros stay": But("items() if value}", "items()}"),
            "zeros of one side stay": """
            def merge_counts(first, second):
                merged = dict(first)
                for key, value in second.items():
                    merged[key] = merged.get(key, 0) + value
                    if merged[key] == 0:
                        del merged[key]
                return merged
            """,
            "keys in the order of a sort": But(
                "list(first) + [key for key in second if key not in first]", "sorted({**first, **second}, key=str)"
            ),
            "into the first one": """
            def merge_counts(first, second):
                for key, value in second.items():
                    first[key] = first.get(key, 0) + value
                return {key: value for key, value in first.items() if value}
            """,
            "the second one wins": But("first.get(key, 0) + second.get(key, 0)", "{**first, **second}[key]"),
        },
    ),
    "flatten_keys": Solution(
        right="""
        def flatten_keys(data, separator="."):
            flat = {}
            for key, value in data.items():
                if isinstance(value, dict) and value:
                    for rest, leaf in flatten_keys(value, separator).items():
                        flat[key + separator + rest] = leaf
                else:
                    flat[key] = value
            return flat
        """,
        wrong={
            "empty dictionaries are lost": But("isinstance(value, dict) and value:", "isinstance(value, dict):"),
            "the separator is lost on the way down": But("flatten_keys(value, separator)", "flatten_keys(value)"),
            "lists are looked into": But(
                "isinstance(value, dict) and value:",
                "isinstance(value, list):\n            value = dict(zip(map(str, range(9)), value))\n"
                "        if isinstance(value, dict) and value:",
            ),
            "values that are false are lost": But("        else:\n", "        elif value or value == {}:\n"),
            "an empty key is no key": """
            def flatten_keys(data, separator=".", before=""):
                flat = {}
                for key, value in data.items():
                    path = before + separator + key if before else key
                    if isinstance(value, dict) and value:
                        flat.update(flatten_keys(value, separator, path))
                    else:
                        flat[path] = value
                return flat
            """,
            "the argument is taken apart": But(
                "for key, value in data.items():\n", "for key in list(data):\n        value = data.pop(key)\n"
            ),
        },
    ),
    "rank_scores": Solution(
        right="""
        def rank_scores(scores):
            ordered = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
            rows = []
            for at, (name, score) in enumerate(ordered, 1):
                rank = rows[-1][0] if rows and rows[-1][2] == score else at
                rows.append((rank, name, score))
            return rows
        """,
        wrong={
            "no rank is skipped": But("else at", "else (rows[-1][0] + 1 if rows else 1)"),
            "every name has a rank of its own": But("rows[-1][0] if rows and rows[-1][2] == score else at", "at"),
            "names in reverse": But(
                "sorted(scores.items(), key=lambda item: (-item[1], item[0]))",
                "sorted(scores.items(), key=lambda item: item[::-1], reverse=True)",
            ),
            "the lowest score is best": But("-item[1]", "item[1]"),
            "names as they come": But("(-item[1], item[0])", "-item[1]"),
            "names without regard to case": But("(-item[1], item[0])", "(-item[1], item[0].lower())"),
            "rows are lists": But("rows.append((rank, name, score))", "rows.append([rank, name, score])"),
        },
    ),
    "config_changes": Solution(
        right="""
        def config_changes(old, new):
            changes = []

            def compare(old, new, path):
                for key in old.keys() | new.keys():
                    here = (*path, key)
                    if key not in new:
                        changes.append(("removed", here, old[key]))
                    elif key not in old:
                        changes.append(("added", here, new[key]))
                    elif isinstance(old[key], dict) and isinstance(new[key], dict):
                        compare(old[key], new[key], here)
                    elif type(old[key]) is not type(new[key]) or old[key] != new[key]:
                        changes.append(("changed", here, old[key], new[key]))

            compare(old, new, ())
            return sorted(changes, key=lambda change: change[1])
        """,
        wrong={
            "types do not matter": But(
                "type(old[key]) is not type(new[key]) or old[key] != new[key]", "old[key] != new[key]"
            ),
            "None is as good as nothing": But(
                "if key not in new:", "if new.get(key) is None and old[key] is not None:"
            ),
            "sorted by kind of change": But(
                "sorted(changes, key=lambda change: change[1])", "sorted(changes, key=lambda change: change[:2])"
            ),
            "in no order": But(
                "return sorted(changes, key=lambda change: change[1])",
                "return sorted(changes, key=lambda change: len(change[1]))",
            ),
            "sorted as dotted names": But("key=lambda change: change[1]", "key=lambda change: '.'.join(change[1])"),
            "dictionaries as a whole": But("isinstance(old[key], dict) and isinstance(new[key], dict)", "old is new"),
            "a new dictionary entry by entry": But(
                "elif key not in old:",
                "elif key not in old and isinstance(new[key], dict):\n"
                "                compare({}, new[key], here)\n            elif key not in old:",
            ),
        },
    ),
}
