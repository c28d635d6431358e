"""Families put together from rules and constants, so that the prompt has to be read, not recognised."""

from ddtree_tune.builtin.train.families.base import NUMBER, NUMBERS, TEXT, Family, Rule, integers, words

TESTS = (
    Rule("even", "$x % 2 == 0"),
    Rule("odd", "$x % 2 == 1"),
    Rule("positive", "$x > 0"),
    Rule("negative", "$x < 0"),
    Rule("not zero", "$x != 0"),
    Rule("greater than $k", "$x > $k"),
    Rule("less than $k", "$x < $k"),
    Rule("at least $k", "$x >= $k"),
    Rule("divisible by $k", "$x % $k == 0"),
    Rule("not $k", "$x != $k"),
)
CHANGES = (
    Rule("doubled", "$x * 2"),
    Rule("squared", "$x * $x"),
    Rule("negated", "-$x"),
    Rule("plus $j", "$x + $j"),
    Rule("minus $j", "$x - $j"),
    Rule("times $j", "$x * $j"),
    Rule("modulo $j", "$x % $j"),
)
ENTRY = {"r": "result out kept", "x": "x value num"}
TWO = {"k": (2, 12), "j": (2, 12)}

RULE_FAMILIES = (
    Family(
        name="select_map",
        stems="select_map pick_and_change map_some keep_changed transform",
        parameters=(NUMBERS,),
        says=(
            "takes the entries of `$a` that are $p_words and returns each of them $q_words",
            "returns a list of the $p_words entries of `$a`, each $q_words",
        ),
        names=ENTRY,
        rules={"p": TESTS, "q": CHANGES},
        constants=TWO,
        body="""
    $r = []
    for $x in $a:
        if $p_code:
            $r.append($q_code)
    return $r""",
        plan="go over the entries, test for $p_words and append each $q_words",
        edge="no such entry gives an empty list",
        arguments=lambda r: (integers(r, 6, -5, 15),),
        edges=(([],), (list(range(-3, 14)),)),
    ),
    Family(
        name="sum_where",
        stems="sum_where total_of sum_if add_selected sum_chosen",
        parameters=(NUMBERS,),
        says=("adds up the entries of `$a` that are $p_words", "returns the sum of the $p_words entries of `$a`"),
        names={"r": "total result acc", "x": "x value num"},
        rules={"p": TESTS},
        constants=TWO,
        body="""
    $r = 0
    for $x in $a:
        if $p_code:
            $r += $x
    return $r""",
        plan="keep a total and add each entry that is $p_words",
        edge="no such entry gives 0",
        arguments=lambda r: (integers(r, 6, -5, 15),),
        edges=(([],), (list(range(-3, 14)),)),
    ),
    Family(
        name="count_where",
        stems="count_where how_many count_if number_of count_matching",
        parameters=(NUMBERS,),
        says=("counts the entries of `$a` that are $p_words", "returns how many entries of `$a` are $p_words"),
        names={"x": "x value num"},
        rules={"p": TESTS},
        constants=TWO,
        body="""
    return sum(1 for $x in $a if $p_code)""",
        plan="add one for each entry that is $p_words",
        edge="an empty list gives 0",
        arguments=lambda r: (integers(r, 6, -5, 15),),
        edges=(([],), (list(range(-3, 14)),)),
    ),
    Family(
        name="first_where",
        stems="first_where find_first first_match earliest",
        parameters=(NUMBERS,),
        says=(
            "returns the first entry of `$a` that is $p_words, or None",
            "finds the first $p_words entry of `$a`, or None if there is none",
        ),
        names={"x": "x value num"},
        rules={"p": TESTS},
        constants=TWO,
        body="""
    for $x in $a:
        if $p_code:
            return $x
    return None""",
        plan="return as soon as an entry is $p_words",
        edge="no such entry gives None",
        arguments=lambda r: (integers(r, 6, -5, 15),),
        edges=(([],), ([0, -3, 1, 13, 12],)),
    ),
    Family(
        name="replace_where",
        stems="replace_where set_matching overwrite replace_values patch",
        parameters=(NUMBERS,),
        says=(
            "returns a copy of `$a` in which every entry that is $p_words becomes $j",
            "replaces the $p_words entries of `$a` by $j",
        ),
        names={"r": "result out copy", "x": "x value num"},
        rules={"p": TESTS},
        constants=TWO,
        body="""
    $r = []
    for $x in $a:
        if $p_code:
            $r.append($j)
        else:
            $r.append($x)
    return $r""",
        plan="append $j where an entry is $p_words and the entry itself elsewhere",
        edge="the input list is not changed",
        arguments=lambda r: (integers(r, 6, -5, 15),),
        edges=(([],), (list(range(-3, 14)),)),
    ),
    Family(
        name="linear",
        stems="linear scale_shift apply_line affine scaled",
        parameters=(NUMBERS,),
        says=(
            "multiplies every entry of `$a` by $k and adds $j",
            "returns the list of $k times each entry of `$a` plus $j",
        ),
        names={"x": "x value num"},
        constants=TWO,
        body="""
    return [$k * $x + $j for $x in $a]""",
        plan="multiply by $k and add $j in a list comprehension",
        edge="an empty list stays empty",
        arguments=lambda r: (integers(r, 5, -5, 15),),
        edges=(([],), ([0, 1, -1],)),
    ),
    Family(
        name="every_kth",
        stems="every_kth take_every step_list thin_out sparse",
        parameters=(NUMBERS,),
        says=(
            "returns every entry of `$a` whose index is divisible by $k",
            "keeps the entries of `$a` at indices 0, $k and so on in steps of $k",
        ),
        names={"r": "result out kept", "x": "i k_index pos", "y": "x value num"},
        constants={"k": (2, 6)},
        body="""
    $r = []
    for $x, $y in enumerate($a):
        if $x % $k == 0:
            $r.append($y)
    return $r""",
        plan="enumerate the entries and keep an index when modulo $k is zero",
        edge="an empty list stays empty",
        arguments=lambda r: (integers(r, 9, 0, 20),),
        edges=(([],), (list(range(14)),)),
    ),
    Family(
        name="long_words",
        stems="long_words words_longer pick_words filter_words",
        parameters=(TEXT,),
        says=(
            "lists the words of `$a` that have more than $k letters",
            "returns every word in `$a` longer than $k letters",
        ),
        names={"x": "word w token"},
        constants={"k": (2, 6)},
        body="""
    return [$x for $x in $a.split() if len($x) > $k]""",
        plan="split the text and keep words longer than $k",
        edge="empty text gives an empty list",
        arguments=lambda r: (words(r),),
        edges=(("",), ("a bb ccc dddd eeeee ffffff ggggggg",)),
    ),
    Family(
        name="replace_multiples",
        stems="mark_multiples label_multiples tag_list replace_multiples",
        parameters=(NUMBER,),
        says=(
            "lists 1 to `$a` as strings with multiples of $k replaced by $p_words",
            "returns the strings from 1 to `$a` but $p_words for multiples of $k",
        ),
        names={"r": "result out lines", "x": "i value pos"},
        rules={"p": tuple(Rule(word, f'"{word}"') for word in ("Buzz", "Pop", "Bang", "Hop", "Tick"))},
        constants={"k": (2, 9)},
        body="""
    $r = []
    for $x in range(1, $a + 1):
        if $x % $k == 0:
            $r.append($p_code)
        else:
            $r.append(str($x))
    return $r""",
        plan="append $p_words when the number modulo $k is zero and the number as a string otherwise",
        edge="zero gives an empty list",
        arguments=lambda r: (r.randint(1, 9),),
        edges=((0,), (18,)),
    ),
    Family(
        name="progression",
        stems="progression series number_steps arithmetic stepped",
        parameters=(NUMBER,),
        says=(
            "returns the first `$a` numbers that start at $j and rise by $k",
            "lists `$a` numbers beginning with $j in steps of $k",
        ),
        names={"x": "i pos step_index"},
        constants=TWO,
        body="""
    return [$j + $k * $x for $x in range($a)]""",
        plan="add $k times the position to $j",
        edge="zero gives an empty list",
        arguments=lambda r: (r.randint(1, 7),),
        edges=((0,), (1,), (5,)),
    ),
    Family(
        name="repeat_until",
        stems="doublings grow_until powers_below repeat_growth",
        parameters=(NUMBER,),
        says=(
            "starts at $j, multiplies by $k and lists the values up to `$a`",
            "returns all values not above `$a` when $j is multiplied by $k again and again",
        ),
        names={"r": "result out steps", "x": "value x current"},
        constants={"k": (2, 5), "j": (1, 9)},
        body="""
    $r = []
    $x = $j
    while $x <= $a:
        $r.append($x)
        $x *= $k
    return $r""",
        plan="multiply by $k in a loop and stop above the limit",
        edge="a limit below $j gives an empty list",
        arguments=lambda r: (r.randint(5, 200),),
        edges=((0,), (100,)),
    ),
)
