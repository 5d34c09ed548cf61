package builtins

import (
	"maps"
	"slices"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
)

// harmless are the builtins without limits: what they take and make is in proportion to their operands, which are at most a review, or
// no more than their result lets a later call make of it; they ask nothing of the numbers in it but to be compared.
var harmless = []string{
	"and", "array.slice", "assign", "base64.is_valid", "contains", "count", "crypto.sha256", "endswith", "eq", "equal", "gt", "gte",
	"indexof", "internal.member_2", "internal.member_3", "internal.print", "internal.test_case", "intersection", "is_array", "is_boolean",
	"is_null", "is_number", "is_object", "is_set", "is_string", "json.filter", "json.is_valid", "json.remove", "lt", "lte", "max", "min",
	"net.cidr_contains", "net.cidr_is_valid", "neq", "object.filter", "object.get", "object.keys", "object.remove", "or", "print",
	"regex.is_valid", "semver.compare", "semver.is_valid", "set_diff", "sort", "startswith", "strings.any_prefix_match",
	"strings.any_suffix_match", "strings.count", "substring", "time.add_date", "time.clock", "time.date", "time.diff",
	"time.parse_duration_ns", "time.parse_ns", "time.parse_rfc3339_ns", "time.weekday", "trim_prefix", "trim_space", "trim_suffix",
	"type_name", "union", "walk",
}

// A builtin that is new to the list is either one with limits or looked at and found harmless.
func TestEveryBuiltinHasALimitOrNeedsNone(t *testing.T) {
	all := slices.Sorted(slices.Values(slices.Concat(harmless, slices.Collect(maps.Keys(limited)))))
	if want := slices.Sorted(slices.Values(allowed)); !slices.Equal(all, want) {
		t.Errorf("got  %q\nwant %q", all, want)
	}
}

// Values that are in each other many times are not gone through to the end to find out how large they are.
func TestAValueOfManyPartsIsMeasuredOnlyUpToALimit(t *testing.T) {
	v := ast.StringTerm("x")
	for range 200 {
		v = ast.ArrayTerm(v, v)
	}
	if size := WrittenSize(v, 1000); size < 1000 || size > 1100 {
		t.Errorf("got %g", size)
	}
}
