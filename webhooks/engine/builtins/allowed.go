package builtins

import (
	"slices"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
)

// allowed are the functions that a policy may call. OPA adds builtins with every release, and its own flag for nondeterminism does not
// cover all that matters here. Left out on purpose:
//
//   - the clock, randomness, the network and the process (time.now_ns, rand.*, uuid.rfc4122, http.send, net.lookup_*,
//     opa.runtime): a decision is a function of its input;
//   - rego.*: a policy neither parses policies nor reads its own annotations, which the engine's copies of its rules lack;
//   - what exceeds any deadline or memory on a large input, because OPA only checks for cancellation between calls: bits.*,
//     json.patch, yaml.*, graphql.*, crypto.x509.*, io.jwt.*, numbers.range*, strings.render_template, net.cidr_expand.
var allowed = []string{
	"abs", "and", "array.concat", "array.flatten", "array.reverse", "array.slice", "assign",
	"base64.decode", "base64.encode", "base64.is_valid", "base64url.decode", "base64url.encode",
	"ceil", "concat", "contains", "count", "crypto.sha256", "div", "endswith", "eq", "equal", "floor", "format_int",
	"glob.match", "glob.quote_meta", "gt", "gte", "indexof",
	"internal.member_2", "internal.member_3", "internal.print", "internal.template_string", "internal.test_case",
	"intersection", "is_array", "is_boolean", "is_null", "is_number", "is_object", "is_set", "is_string",
	"json.filter", "json.is_valid", "json.marshal", "json.remove", "json.unmarshal",
	"lower", "lt", "lte", "max", "min", "minus", "mul",
	"net.cidr_contains", "net.cidr_is_valid", "neq",
	"object.filter", "object.get", "object.keys", "object.remove", "object.subset", "object.union", "object.union_n",
	"or", "plus", "print", "product", "regex.is_valid", "regex.match", "regex.replace", "regex.split", "rem", "replace",
	"round", "semver.compare", "semver.is_valid", "set_diff", "sort", "split", "sprintf", "startswith",
	"strings.any_prefix_match", "strings.any_suffix_match", "strings.count", "strings.replace_n", "strings.reverse",
	"substring", "sum", "time.add_date", "time.clock", "time.date", "time.diff", "time.format",
	"time.parse_duration_ns", "time.parse_ns", "time.parse_rfc3339_ns", "time.weekday", "to_number",
	"trim", "trim_left", "trim_prefix", "trim_right", "trim_space", "trim_suffix", "type_name", "union",
	"units.parse", "units.parse_bytes", "upper", "urlquery.decode", "urlquery.encode", "walk",
}

// features are the language features of this revision of the contract. rego_v2 is not among them: it changes the meaning of `not`,
// and a new OPA must not change a policy's decisions.
var features = []string{ast.FeatureRegoV1, ast.FeatureKeywordsInRefs, ast.FeatureTemplateStrings}

// usable returns the allowed builtins of this OPA. It is cached, because OPA sorts its list at every call.
var usable = sync.OnceValue(func() (all []*ast.Builtin) {
	for _, builtin := range ast.CapabilitiesForThisVersion().Builtins {
		if isUsable(builtin) {
			all = append(all, builtin)
		}
	}
	return all
})

func isUsable(b *ast.Builtin) bool { return slices.Contains(allowed, b.Name) }

// Capabilities returns the features and builtins for parsing and compiling policies.
func Capabilities() *ast.Capabilities {
	return &ast.Capabilities{Features: slices.Clone(features), Builtins: slices.Clone(usable()), AllowNet: []string{}}
}
