"""Families about whole numbers: sequences, divisors, digits, numerals."""

from ddtree_tune.builtin.train.families.base import NUMBER, Family

NUMBER_FAMILIES = (
    Family(
        name="fizzbuzz",
        stems="fizzbuzz fizz_buzz fizz fizz_list",
        parameters=(NUMBER,),
        says=("returns the FizzBuzz list from 1 to `$a`", "builds the FizzBuzz sequence up to `$a`"),
        names={"r": "result out lines", "x": "i k value"},
        body="""
    $r = []
    for $x in range(1, $a + 1):
        if $x % 15 == 0:
            $r.append("FizzBuzz")
        elif $x % 3 == 0:
            $r.append("Fizz")
        elif $x % 5 == 0:
            $r.append("Buzz")
        else:
            $r.append(str($x))
    return $r""",
        plan="test 15 first, then 3, then 5",
        edge="zero gives an empty list",
        arguments=lambda r: (r.randint(1, 7),),
        edges=((0,), (15,)),
    ),
    Family(
        name="gcd",
        stems="gcd greatest_divisor common_divisor largest_divisor",
        parameters=("a x m", "b y k"),
        says=(
            "computes the greatest common divisor of `$a` and `$b`",
            "returns the largest integer dividing both `$a` and `$b`",
        ),
        body="""
    while $b:
        $a, $b = $b, $a % $b
    return $a""",
        plan="use Euclid's algorithm until the remainder is zero",
        edge="if the second number is zero return the first",
        arguments=lambda r: (r.randint(2, 60), r.randint(2, 60)),
        edges=((7, 0), (12, 18)),
    ),
    Family(
        name="lcm",
        stems="lcm least_multiple common_multiple smallest_multiple",
        parameters=("a x m", "b y k"),
        says=(
            "computes the least common multiple of `$a` and `$b`",
            "returns the smallest number that both `$a` and `$b` divide",
        ),
        names={"r": "multiple result candidate"},
        body="""
    $r = $a
    while $r % $b != 0:
        $r += $a
    return $r""",
        plan="walk through the multiples of the first number",
        edge="equal numbers give the number itself",
        arguments=lambda r: (r.randint(1, 20), r.randint(1, 20)),
        edges=((5, 5), (4, 6)),
    ),
    Family(
        name="fibonacci",
        stems="fibonacci fib fib_list fib_numbers",
        parameters=(NUMBER,),
        says=(
            "returns the first `$a` Fibonacci numbers",
            "lists the Fibonacci sequence with `$a` entries starting at 0",
        ),
        names={"r": "result out seq_out", "x": "a first prev", "y": "b second curr"},
        body="""
    $r = []
    $x, $y = 0, 1
    for _ in range($a):
        $r.append($x)
        $x, $y = $y, $x + $y
    return $r""",
        plan="keep two running values and append in a loop",
        edge="zero gives an empty list",
        arguments=lambda r: (r.randint(1, 9),),
        edges=((0,), (1,)),
    ),
    Family(
        name="roman",
        stems="to_roman int_to_roman roman roman_numeral as_roman",
        parameters=(NUMBER,),
        says=("converts the integer `$a` to a Roman numeral", "returns the Roman numeral string for `$a`"),
        names={
            "r": "result out roman_text",
            "p": "pairs table symbols",
            "x": "value v amount",
            "y": "symbol sym letter",
        },
        body="""
    $p = [(100, "C"), (90, "XC"), (50, "L"), (40, "XL"),
          (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")]
    $r = ""
    for $x, $y in $p:
        while $a >= $x:
            $r += $y
            $a -= $x
    return $r""",
        plan="go through the values from large to small and subtract",
        edge="zero gives an empty string",
        arguments=lambda r: (r.randint(1, 120),),
        edges=((0,), (4,), (49,), (99,)),
    ),
    Family(
        name="factorial",
        stems="factorial fact compute_factorial product_to",
        parameters=(NUMBER,),
        says=("computes the factorial of `$a`", "returns `$a` factorial"),
        names={"r": "result product total", "x": "i k factor"},
        body="""
    $r = 1
    for $x in range(2, $a + 1):
        $r *= $x
    return $r""",
        plan="multiply the numbers from 2 up in a loop",
        edge="zero factorial is 1",
        arguments=lambda r: (r.randint(1, 8),),
        edges=((0,), (5,)),
    ),
    Family(
        name="is_prime",
        stems="is_prime check_prime prime_test prime",
        parameters=(NUMBER,),
        says=("checks whether `$a` is a prime number", "returns True when `$a` is prime"),
        names={"x": "i d divisor"},
        body="""
    if $a < 2:
        return False
    $x = 2
    while $x * $x <= $a:
        if $a % $x == 0:
            return False
        $x += 1
    return True""",
        plan="try divisors up to the square root",
        edge="numbers below 2 are not prime",
        arguments=lambda r: (r.randint(1, 60),),
        edges=((0,), (1,), (2,), (49,)),
    ),
    Family(
        name="sieve",
        stems="primes_up_to sieve list_primes primes_below",
        parameters=(NUMBER,),
        says=("lists all primes up to `$a`", "returns the prime numbers not larger than `$a`"),
        names={"r": "primes result found", "x": "i k candidate", "y": "p q"},
        body="""
    $r = []
    for $x in range(2, $a + 1):
        if all($x % $y for $y in $r):
            $r.append($x)
    return $r""",
        plan="keep a list of primes and test each candidate against it",
        edge="below 2 the list is empty",
        arguments=lambda r: (r.randint(2, 20),),
        edges=((1,), (2,), (30,)),
    ),
    Family(
        name="digit_sum",
        stems="digit_sum sum_digits add_digits digits_total",
        parameters=(NUMBER,),
        says=("sums the decimal digits of `$a`", "returns the sum of the digits of `$a`"),
        names={"r": "total result digits_sum"},
        body="""
    $r = 0
    while $a > 0:
        $r += $a % 10
        $a //= 10
    return $r""",
        plan="take the last digit with modulo and divide by ten",
        edge="zero gives zero",
        arguments=lambda r: (r.randint(10, 9999),),
        edges=((0,), (999,)),
    ),
    Family(
        name="to_binary",
        stems="to_binary binary_string int_to_bits as_binary",
        parameters=(NUMBER,),
        says=("converts `$a` to a binary string", "returns the base 2 digits of `$a` as a string"),
        names={"r": "bits result out"},
        body="""
    if $a == 0:
        return "0"
    $r = ""
    while $a > 0:
        $r = str($a % 2) + $r
        $a //= 2
    return $r""",
        plan="collect remainders modulo two from the right",
        edge="zero gives the string 0",
        arguments=lambda r: (r.randint(0, 64),),
        edges=((0,), (5,)),
    ),
    Family(
        name="clamp",
        stems="clamp limit_value bound keep_within",
        parameters=("value x num", "low lo minimum", "high hi maximum"),
        says=("limits `$a` to the range from `$b` to `$c`", "clamps `$a` between `$b` and `$c`"),
        body="""
    if $a < $b:
        return $b
    if $a > $c:
        return $c
    return $a""",
        plan="compare with both bounds",
        edge="a value inside is unchanged",
        arguments=lambda r: (r.randint(-20, 40), r.randint(0, 9), r.randint(10, 30)),
        edges=((5, 0, 9), (-1, 0, 9), (12, 0, 9)),
    ),
    Family(
        name="collatz",
        stems="collatz collatz_steps collatz_path hailstone",
        parameters=(NUMBER,),
        says=("returns the Collatz sequence starting at `$a`", "lists the Collatz numbers from `$a` down to 1"),
        names={"r": "path result steps"},
        body="""
    $r = [$a]
    while $a != 1:
        if $a % 2 == 0:
            $a //= 2
        else:
            $a = 3 * $a + 1
        $r.append($a)
    return $r""",
        plan="halve even numbers and map odd ones to 3n+1",
        edge="one gives just one entry",
        arguments=lambda r: (r.randint(2, 10),),
        edges=((1,), (6,)),
    ),
    Family(
        name="divisors",
        stems="divisors list_divisors factors_of all_divisors",
        parameters=(NUMBER,),
        says=("lists the divisors of `$a` in rising order", "returns every number that divides `$a`"),
        names={"r": "result found out", "x": "i k d"},
        body="""
    $r = []
    for $x in range(1, $a + 1):
        if $a % $x == 0:
            $r.append($x)
    return $r""",
        plan="try every number from 1 up and keep those without remainder",
        edge="one has only itself",
        arguments=lambda r: (r.randint(2, 30),),
        edges=((1,), (12,)),
    ),
)
