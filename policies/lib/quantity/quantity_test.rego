package sallyport.lib.quantity_test

import data.sallyport.lib.quantity

test_nanos[text] if {
	some text, want in {
		"1": 1000000000,
		"+1": 1000000000,
		"-1": -1000000000,
		"0": 0,
		"007": 7000000000,
		"00000000000000000000008Gi": 8589934592000000000,
		"-00000000000000000000.50": -500000000,
		"+0000000000000000000000": 0,
		"1.50000000000000000000000Gi": 1610612736000000000,
		".50000000000000000000000": 500000000,
		"5.00000000000000000000000": 5000000000,
		"100m": 100000000,
		"0.1": 100000000,
		".5": 500000000,
		"5.": 5000000000,
		"1u": 1000,
		"1n": 1,
		"1k": 1000000000000,
		"1Ki": 1024000000000,
		"1.5Gi": 1610612736000000000,
		"1e3": 1000000000000,
		"1E+3": 1000000000000,
		"1e-3": 1000000,
		"1e10": 10000000000000000000,
		"2E": 2000000000000000000000000000,
	}
	quantity.nanos(text) == want
}

test_nanos_of_a_number if quantity.nanos(2) == 2000000000

test_not_known[note] if {
	some note, q in {
		"empty": "",
		"a suffix": "Gi",
		"an unknown suffix": "1K",
		"small letters": "1gi",
		"a space": "1 Gi",
		"two points": "1.2.3",
		"too long": "1234567890123456789",
		"a fraction as a number": 1.5,
		"a boolean": true,
		"null": null,
		"an exponent that is too large": "1e19",
	}
	not _known(q)
}

_known(q) if quantity.known(q)

test_compare[note] if {
	some note, tc in {
		"less": {"a": "100m", "b": "1", "want": -1},
		"equal": {"a": "1000m", "b": "1", "want": 0},
		"binary": {"a": "1Gi", "b": "1G", "want": 1},
	}
	quantity.compare(tc.a, tc.b) == tc.want
}

test_total if quantity.total(["100m", "0.2", "1"]) == quantity.nanos("1.3")

test_total_of_none if quantity.total([]) == 0

test_no_total_with_what_is_no_quantity[note] if {
	some note, list in {"first": ["x", "1"], "last": ["1", null]}
	not _has_total(list)
}

_has_total(list) if quantity.total(list) >= 0
