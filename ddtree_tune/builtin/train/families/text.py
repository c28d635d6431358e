"""Families about text: words, characters, brackets, ciphers."""

from ddtree_tune.builtin.train.families.base import TEXT, WORDS, Family, words

BRACKETS = ("()", "([])", "(]", "{[()]}", "((", "a(b)c", "[x]{y}", "())")

TEXT_FAMILIES = (
    Family(
        name="word_count",
        stems="word_count count_words word_freq word_table tally_words",
        parameters=(TEXT,),
        says=(
            "counts how often each word occurs in `$a`",
            "returns a dict of word counts for `$a`",
            "maps every word of `$a` to its frequency",
        ),
        names={"r": "counts freq result tally", "x": "word w token"},
        body="""
    $r = {}
    for $x in $a.split():
        $r[$x] = $r.get($x, 0) + 1
    return $r""",
        plan="split the text on whitespace and count in a dict",
        edge="empty text gives an empty dict",
        arguments=lambda r: (words(r),),
        edges=(("",), ("a b a",)),
    ),
    Family(
        name="palindrome",
        stems="is_palindrome palindrome check_palindrome reads_same mirror_text",
        parameters=(TEXT,),
        says=(
            "checks whether `$a` is a palindrome, ignoring case and spaces",
            "returns True if `$a` reads the same backwards, ignoring case and spaces",
        ),
        names={"r": "cleaned clean chars", "x": "c ch char"},
        body="""
    $r = [$x.lower() for $x in $a if $x.isalnum()]
    return $r == $r[::-1]""",
        plan="keep letters and digits, then compare with the reverse",
        edge="empty text is a palindrome",
        arguments=lambda r: (r.choice(WORDS),),
        edges=(("",), ("Never odd or even",), ("ab",)),
    ),
    Family(
        name="reverse_words",
        stems="reverse_words flip_words words_reversed backward_words",
        parameters=(TEXT,),
        says=("reverses the order of the words in `$a`", "returns `$a` with its words in reverse order"),
        names={"r": "words parts tokens"},
        body="""
    $r = $a.split()
    return " ".join(reversed($r))""",
        plan="split into words, reverse and join with a space",
        edge="empty text stays empty",
        arguments=lambda r: (words(r),),
        edges=(("",), ("one",)),
    ),
    Family(
        name="caesar",
        stems="caesar caesar_cipher shift_text shift_letters encode_shift",
        parameters=(TEXT, "shift key offset"),
        says=(
            "applies a Caesar cipher with shift `$b` to the lowercase letters of `$a`",
            "shifts each lowercase letter of `$a` by `$b` places",
        ),
        names={"r": "result out encoded", "x": "c ch char", "y": "code pos index"},
        body="""
    $r = []
    for $x in $a:
        if "a" <= $x <= "z":
            $y = (ord($x) - ord("a") + $b) % 26
            $r.append(chr($y + ord("a")))
        else:
            $r.append($x)
    return "".join($r)""",
        plan="shift letters modulo 26 and keep other characters",
        edge="spaces are not changed",
        arguments=lambda r: (words(r, 3), r.randint(1, 25)),
        edges=(("", 3), ("xyz!", 3)),
    ),
    Family(
        name="anagrams",
        stems="group_anagrams anagram_groups group_words anagram_lists",
        parameters=("words strings items",),
        says=("groups the anagrams in `$a`", "returns lists of words from `$a` that are anagrams of each other"),
        names={"r": "groups buckets table", "x": "word w s", "y": "key k sig"},
        body="""
    $r = {}
    for $x in $a:
        $y = "".join(sorted($x))
        $r.setdefault($y, []).append($x)
    return list($r.values())""",
        plan="use the sorted letters of each word as a dict key",
        edge="an empty list gives no groups",
        arguments=lambda r: ([r.choice(WORDS) for _ in range(r.randint(2, 4))],),
        edges=(([],), (["eat", "tea", "tan", "ate"],)),
    ),
    Family(
        name="rle",
        stems="run_length encode_runs rle_encode run_lengths count_runs",
        parameters=(TEXT,),
        says=("run-length encodes `$a` into a list of pairs", "compresses `$a` into (character, count) pairs"),
        names={"r": "runs result out", "x": "c ch char"},
        body="""
    $r = []
    for $x in $a:
        if $r and $r[-1][0] == $x:
            $r[-1] = ($x, $r[-1][1] + 1)
        else:
            $r.append(($x, 1))
    return $r""",
        plan="extend the last run when the character repeats",
        edge="empty text gives no runs",
        arguments=lambda r: ("".join(r.choice("abc") * r.randint(1, 3) for _ in range(3)),),
        edges=(("",), ("aab",)),
    ),
    Family(
        name="vowels",
        stems="count_vowels vowel_count num_vowels vowels_in",
        parameters=(TEXT,),
        says=("counts the vowels in `$a`", "returns how many vowels `$a` has"),
        names={"x": "c ch char"},
        body="""
    return sum(1 for $x in $a.lower() if $x in "aeiou")""",
        plan="lowercase the text and count characters in aeiou",
        edge="empty text has no vowels",
        arguments=lambda r: (words(r),),
        edges=(("",), ("AEIOU xyz",)),
    ),
    Family(
        name="balanced",
        stems="is_balanced check_brackets balanced brackets_match valid_brackets",
        parameters=(TEXT,),
        says=(
            "checks whether the brackets in `$a` are balanced",
            "returns True if every bracket in `$a` is closed in the right order",
        ),
        names={"r": "stack opened pending", "p": "pairs match closers", "x": "c ch char"},
        body="""
    $p = {")": "(", "]": "[", "}": "{"}
    $r = []
    for $x in $a:
        if $x in "([{":
            $r.append($x)
        elif $x in $p:
            if not $r or $r.pop() != $p[$x]:
                return False
    return not $r""",
        plan="push open brackets on a stack and pop on close",
        edge="empty text is balanced",
        arguments=lambda r: (r.choice(BRACKETS),),
        edges=(("",), ("([)]",), ("(",), ("{[()]}",)),
    ),
    Family(
        name="title_case",
        stems="title_case capitalize_words to_title upper_first",
        parameters=(TEXT,),
        says=("capitalizes every word of `$a`", "returns `$a` with the first letter of each word in upper case"),
        names={"x": "word w token"},
        body="""
    return " ".join($x.capitalize() for $x in $a.split())""",
        plan="capitalize each word and join again",
        edge="empty text stays empty",
        arguments=lambda r: (words(r),),
        edges=(("",),),
    ),
    Family(
        name="longest_word",
        stems="longest_word find_longest longest widest_word",
        parameters=(TEXT,),
        says=("returns the longest word of `$a`", "finds the first longest word in `$a`"),
        names={"r": "best longest_so_far top", "x": "word w token"},
        body="""
    $r = ""
    for $x in $a.split():
        if len($x) > len($r):
            $r = $x
    return $r""",
        plan="compare the length of each word with the best one",
        edge="empty text gives an empty string",
        arguments=lambda r: (words(r),),
        edges=(("",), ("aa bb c",)),
    ),
    Family(
        name="acronym",
        stems="acronym initials first_letters make_acronym",
        parameters=(TEXT,),
        says=("builds the acronym of `$a` in upper case", "joins the first letters of the words in `$a` in upper case"),
        names={"r": "letters parts result", "x": "word w token"},
        body="""
    $r = []
    for $x in $a.split():
        $r.append($x[0].upper())
    return "".join($r)""",
        plan="take the first letter of each word and raise its case",
        edge="empty text gives an empty string",
        arguments=lambda r: (words(r),),
        edges=(("",),),
    ),
    Family(
        name="common_prefix",
        stems="common_prefix shared_start prefix_of_both same_start",
        parameters=("left a first", "right b second"),
        says=(
            "returns the longest common prefix of `$a` and `$b`",
            "finds the text that `$a` and `$b` start with alike",
        ),
        names={"r": "size length count"},
        body="""
    $r = 0
    while $r < min(len($a), len($b)) and $a[$r] == $b[$r]:
        $r += 1
    return $a[:$r]""",
        plan="advance while both characters agree and cut there",
        edge="no common start gives an empty string",
        arguments=lambda r: ((w := r.choice(WORDS)) + r.choice(WORDS), w + r.choice(WORDS)),
        edges=(("", "ab"), ("ab", "xy"), ("abc", "abd")),
    ),
    Family(
        name="char_positions",
        stems="char_positions find_char letter_index where_is",
        parameters=(TEXT, "letter char target"),
        says=("lists the positions of `$b` in `$a`", "returns every index at which `$b` occurs in `$a`"),
        names={"r": "result found out", "x": "i k pos", "y": "c ch item"},
        body="""
    $r = []
    for $x, $y in enumerate($a):
        if $y == $b:
            $r.append($x)
    return $r""",
        plan="enumerate the characters and keep the indices that match",
        edge="no match gives an empty list",
        arguments=lambda r: (words(r, 3), r.choice("aeort")),
        edges=(("", "a"), ("banana", "a")),
    ),
)
