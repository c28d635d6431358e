"""Families about lists and dicts: searching, sorting, cutting, joining."""

from ddtree_tune.builtin.train.families.base import ITEMS, NUMBERS, WORDS, Family, integers

SEQUENCE_FAMILIES = (
    Family(
        name="two_sum",
        stems="two_sum find_pair pair_sum sum_pair",
        parameters=(NUMBERS, "target goal total"),
        says=(
            "finds the indices of two entries of `$a` that add up to `$b`",
            "returns the index pair in `$a` whose sum is `$b`, or None",
        ),
        names={"r": "seen index lookup", "x": "i k pos", "y": "x value num"},
        body="""
    $r = {}
    for $x, $y in enumerate($a):
        if $b - $y in $r:
            return ($r[$b - $y], $x)
        $r[$y] = $x
    return None""",
        plan="remember each value in a dict and look up the complement",
        edge="no pair gives None",
        arguments=lambda r: (integers(r), r.randint(5, 30)),
        edges=(([], 3), ([1, 2, 4], 6), ([3, 3], 6)),
    ),
    Family(
        name="flatten",
        stems="flatten flatten_list flat unnest",
        parameters=("items nested lists rows",),
        says=("flattens the list of lists `$a` by one level", "turns the nested list `$a` into one flat list"),
        names={"r": "result flat out", "x": "sub row part", "y": "item x value"},
        body="""
    $r = []
    for $x in $a:
        for $y in $x:
            $r.append($y)
    return $r""",
        plan="loop over the inner lists and append each item",
        edge="an empty list stays empty",
        arguments=lambda r: ([integers(r, 3, 0, 9) for _ in range(2)],),
        edges=(([],), ([[], [1]],)),
    ),
    Family(
        name="merge_sorted",
        stems="merge_sorted merge_lists merge merge_ordered join_sorted",
        parameters=("left a first", "right b second"),
        says=(
            "merges the sorted lists `$a` and `$b` into one sorted list",
            "combines two sorted lists `$a` and `$b` keeping the order",
        ),
        names={"r": "result merged out", "x": "i p", "y": "j q"},
        body="""
    $r = []
    $x = $y = 0
    while $x < len($a) and $y < len($b):
        if $a[$x] <= $b[$y]:
            $r.append($a[$x])
            $x += 1
        else:
            $r.append($b[$y])
            $y += 1
    $r.extend($a[$x:])
    $r.extend($b[$y:])
    return $r""",
        plan="walk both lists with two indices and take the smaller head",
        edge="one list may be empty, so extend with the rest",
        arguments=lambda r: (sorted(integers(r, 4)), sorted(integers(r, 4))),
        edges=(([], []), ([1], []), ([], [2]), ([1, 3], [2, 4])),
    ),
    Family(
        name="dedupe",
        stems="dedupe unique remove_duplicates distinct drop_repeats",
        parameters=(ITEMS,),
        says=(
            "removes duplicates from `$a` keeping the order",
            "returns the distinct entries of `$a` in order of first appearance",
        ),
        names={"r": "result out kept", "p": "seen known visited", "x": "item x value"},
        body="""
    $p = set()
    $r = []
    for $x in $a:
        if $x not in $p:
            $p.add($x)
            $r.append($x)
    return $r""",
        plan="track what was seen in a set and keep the first ones",
        edge="an empty list stays empty",
        arguments=lambda r: (integers(r, 6, 0, 5),),
        edges=(([],), ([2, 2, 1],)),
    ),
    Family(
        name="chunk",
        stems="chunk split_chunks make_chunks pieces cut_list",
        parameters=(ITEMS, "size width k"),
        says=("splits `$a` into chunks of length `$b`", "cuts `$a` into consecutive pieces of `$b` entries"),
        names={"x": "i start pos"},
        body="""
    return [$a[$x:$x + $b] for $x in range(0, len($a), $b)]""",
        plan="slice the list with a step",
        edge="the last chunk may be shorter",
        arguments=lambda r: (integers(r), r.randint(2, 3)),
        edges=(([], 2), ([1, 2, 3], 2)),
    ),
    Family(
        name="transpose",
        stems="transpose flip_matrix transpose_matrix swap_axes",
        parameters=("matrix grid rows",),
        says=("transposes the matrix `$a`", "swaps rows and columns of `$a`"),
        names={"x": "row col line"},
        body="""
    return [list($x) for $x in zip(*$a)]""",
        plan="zip the rows together",
        edge="an empty matrix stays empty",
        arguments=lambda r: ([[r.randint(0, 9) for _ in range(2)] for _ in range(2)],),
        edges=(([],), ([[1, 2, 3]],)),
    ),
    Family(
        name="binary_search",
        stems="binary_search bisect_find find_index search_sorted locate",
        parameters=(NUMBERS, "target goal key"),
        says=(
            "finds the index of `$b` in the sorted list `$a` by binary search, or -1",
            "searches the sorted list `$a` for `$b` and returns its index or -1",
        ),
        names={"x": "lo low left", "y": "hi high right", "z": "mid middle m"},
        body="""
    $x, $y = 0, len($a) - 1
    while $x <= $y:
        $z = ($x + $y) // 2
        if $a[$z] == $b:
            return $z
        if $a[$z] < $b:
            $x = $z + 1
        else:
            $y = $z - 1
    return -1""",
        plan="halve the interval until the value is found",
        edge="a missing value gives -1",
        arguments=lambda r: (sorted(set(integers(r))), r.randint(0, 20)),
        edges=(([], 1), ([1, 3, 5], 5), ([1, 3, 5], 4), ([2], 2)),
    ),
    Family(
        name="bubble_sort",
        stems="bubble_sort sort_list sort_numbers order_list",
        parameters=(NUMBERS,),
        says=("sorts `$a` with bubble sort and returns a new list", "returns a sorted copy of `$a` using bubble sort"),
        names={"r": "result out copy", "x": "i outer", "y": "j inner"},
        body="""
    $r = list($a)
    for $x in range(len($r)):
        for $y in range(len($r) - 1 - $x):
            if $r[$y] > $r[$y + 1]:
                $r[$y], $r[$y + 1] = $r[$y + 1], $r[$y]
    return $r""",
        plan="copy the list and swap neighbours that are out of order",
        edge="do not change the input",
        arguments=lambda r: (integers(r),),
        edges=(([],), ([3, 1, 2],)),
    ),
    Family(
        name="max_subarray",
        stems="max_subarray best_sum largest_sum top_slice",
        parameters=(NUMBERS,),
        says=("finds the largest sum of a contiguous part of `$a`", "returns the maximum subarray sum of `$a`"),
        names={"r": "best top answer", "y": "current running here", "x": "x value num"},
        body="""
    $r = $y = $a[0]
    for $x in $a[1:]:
        $y = max($x, $y + $x)
        $r = max($r, $y)
    return $r""",
        plan="use Kadane's algorithm with a running sum",
        edge="all numbers may be negative",
        arguments=lambda r: (integers(r, 6, -9, 9),),
        edges=(([-3, -1],), ([1, -2, 4],)),
    ),
    Family(
        name="average",
        stems="average mean compute_mean mean_of",
        parameters=(NUMBERS,),
        says=("computes the average of `$a`", "returns the arithmetic mean of `$a`, or 0 if it is empty"),
        body="""
    if not $a:
        return 0
    return sum($a) / len($a)""",
        plan="divide the sum by the length",
        edge="an empty list gives 0",
        arguments=lambda r: ([2 * r.randint(0, 9), 2 * r.randint(0, 9)],),
        edges=(([],), ([4],)),
    ),
    Family(
        name="second_largest",
        stems="second_largest second_max runner_up second_best",
        parameters=(NUMBERS,),
        says=(
            "returns the second largest distinct value of `$a`, or None",
            "finds the second highest distinct number in `$a`, or None",
        ),
        names={"r": "ordered distinct ranked"},
        body="""
    $r = sorted(set($a), reverse=True)
    if len($r) < 2:
        return None
    return $r[1]""",
        plan="sort the distinct values from high to low",
        edge="fewer than two values gives None",
        arguments=lambda r: (integers(r),),
        edges=(([],), ([5, 5],), ([1, 2],)),
    ),
    Family(
        name="running_sum",
        stems="running_sum prefix_sums cumulative running_total",
        parameters=(NUMBERS,),
        says=("returns the running totals of `$a`", "computes the prefix sums of `$a`"),
        names={"r": "result out sums", "y": "total acc current", "x": "x value num"},
        body="""
    $r = []
    $y = 0
    for $x in $a:
        $y += $x
        $r.append($y)
    return $r""",
        plan="keep a total and append it at each step",
        edge="an empty list stays empty",
        arguments=lambda r: (integers(r, 5, 0, 9),),
        edges=(([],), ([1, 2, 3],)),
    ),
    Family(
        name="intersect",
        stems="intersect common_items shared in_both",
        parameters=("a first left", "b second right"),
        says=(
            "returns the entries of `$a` that also occur in `$b`",
            "finds the common entries of `$a` and `$b`, in the order of `$a`",
        ),
        names={"r": "known lookup others", "x": "x item value"},
        body="""
    $r = set($b)
    return [$x for $x in $a if $x in $r]""",
        plan="put the second list in a set and filter the first",
        edge="no common entry gives an empty list",
        arguments=lambda r: (integers(r, 4, 0, 9), integers(r, 4, 0, 9)),
        edges=(([], [1]), ([1, 2], [2, 1])),
    ),
    Family(
        name="rotate",
        stems="rotate rotate_list shift_list turn_list",
        parameters=(ITEMS, "k steps shift"),
        says=("rotates `$a` to the right by `$b` places", "moves the last `$b` entries of `$a` to the front"),
        body="""
    if not $a:
        return []
    $b = $b % len($a)
    return $a[-$b:] + $a[:-$b] if $b else list($a)""",
        plan="reduce the shift modulo the length and join two slices",
        edge="an empty list stays empty",
        arguments=lambda r: (integers(r, 5, 0, 9), r.randint(1, 4)),
        edges=(([], 2), ([1, 2, 3], 3), ([1, 2, 3], 1)),
    ),
    Family(
        name="invert_dict",
        stems="invert_dict swap_keys invert flip_dict",
        parameters=("mapping table d",),
        says=("swaps the keys and values of `$a`", "returns a dict that maps the values of `$a` to its keys"),
        names={"r": "result inverted out", "x": "key k name", "y": "value v item"},
        body="""
    $r = {}
    for $x, $y in $a.items():
        $r[$y] = $x
    return $r""",
        plan="loop over the items and store them swapped",
        edge="an empty dict stays empty",
        arguments=lambda r: ({w: r.randint(1, 30) for w in r.sample(WORDS, 2)},),
        edges=(({},), ({"a": 1, "b": 2},)),
    ),
)
