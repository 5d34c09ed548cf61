# METADATA
# title: Quantities
# description: >-
#   Compares and adds quantities in Kubernetes notation exactly. A quantity is a string such as "100m", "1.5Gi" or "2e3", or an
#   integer. Functions are undefined for any other value, for more than 18 digits on a side of the decimal point, without zeros before
#   and after them, and for an exponent outside -9 to 18: check a value with known first.
package sallyport.lib.quantity

# METADATA
# description: The factor of each suffix, in billionths of the unit.
_scales := {
	"n": 1, "u": 1000, "m": 1000000, "": 1000000000,
	"k": 1000000000000, "M": 1000000000000000, "G": 1000000000000000000,
	"T": 1000000000000000000000, "P": 1000000000000000000000000, "E": 1000000000000000000000000000,
	"Ki": 1024 * 1000000000, "Mi": 1048576 * 1000000000, "Gi": 1073741824 * 1000000000,
	"Ti": 1099511627776 * 1000000000, "Pi": 1125899906842624 * 1000000000, "Ei": 1152921504606846976 * 1000000000,
}

# METADATA
# description: Whether a value is a quantity.
known(q) if regex.match(
	`^[+-]?(0*\d{1,18}(\.(\d{0,18}0*)?)?|\.\d{1,18}0*)([eE](\+?(1[0-8]|\d)|-\d)|[KMGTPE]i|[numkMGTPE]?)$`,
	_text(q),
)

# METADATA
# description: >-
#   A quantity as an integer in billionths of its unit (of a core, of a byte). Fractions of a billionth are rounded up, as in
#   Kubernetes. The result is exact up to 19 digits.
nanos(q) := _sign(text) * ceil((_digits(text) * _scale(text)) / _power(_decimals(text))) if {
	known(q)
	text := _text(q)
}

# METADATA
# description: Compares a with b. The result is -1 if a is less, 0 if they are equal, and 1 if a is more.
compare(a, b) := -1 if nanos(a) < nanos(b)

compare(a, b) := 0 if nanos(a) == nanos(b)

compare(a, b) := 1 if nanos(a) > nanos(b)

# METADATA
# description: The sum of a list of quantities, in billionths of their unit. It is undefined if an entry is not a quantity.
total(list) := sum(amounts) if {
	amounts := [nanos(q) | some q in list]
	count(amounts) == count(list)
}

_text(q) := q if is_string(q)

_text(q) := format_int(q, 10) if {
	is_number(q)
	floor(q) == q
}

_sign(text) := -1 if startswith(text, "-")

_sign(text) := 1 if not startswith(text, "-")

# Without zeros that change nothing.
_amount(text) := regex.replace(regex.replace(text, `^[+-]?0*|[a-zA-Z].*$`, ""), `(\.\d*[1-9])0+$|\.0*$`, "$1")

_digits(text) := to_number($"1{replace(_amount(text), ".", "")}") - _power(count(replace(_amount(text), ".", "")))

_decimals(text) := 0 if not contains(_amount(text), ".")

_decimals(text) := (count(_amount(text)) - indexof(_amount(text), ".")) - 1 if contains(_amount(text), ".")

_suffix(text) := regex.replace(text, `^[+-]?[\d.]+`, "")

_scale(text) := _scales[_suffix(text)]

_scale(text) := 1000000000 * _power(to_number(trim_left(_suffix(text), "eE+"))) if {
	regex.match(`^[eE]\+?\d+$`, _suffix(text))
}

_scale(text) := 1000000000 / _power(to_number(trim_left(_suffix(text), "eE-"))) if {
	regex.match(`^[eE]-\d$`, _suffix(text))
}

# METADATA
# description: 10 to the power of n.
_power(n) := to_number(substring("1000000000000000000000000000000000000", 0, n + 1))
