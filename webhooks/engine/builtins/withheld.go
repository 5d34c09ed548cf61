package builtins

import (
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// alternatives names alternatives for builtins by prefix; the longest prefix applies.
var alternatives = map[string]string{
	"bits.":         "div, rem and mul with powers of two",
	"cast_":         "is_array, is_string and the like to ask for a type, and to_number or sprintf to convert",
	"crypto.":       "crypto.sha256; certificates, keys and HMACs do not belong into an admission decision",
	"graph.":        "rules or comprehensions for as many steps as a decision needs",
	"graphql.":      "json.unmarshal, for text that is JSON",
	"hex.":          "base64.encode or base64.decode",
	"http.send":     "facts, which read objects of the cluster (facts.NAME := {...}, with the kind in spec.reads)",
	"indexof_n":     "indexof or strings.count",
	"io.jwt.":       "input.request.userInfo, whom the API server has authenticated",
	"json.marshal_": "json.marshal",
	"json.match_":   "is_string, is_object and the like, and `every`",
	"json.patch":    "object.union or json.remove, or a patch rule to change the object under review",
	"json.verify_":  "spec.parametersSchema for parameters",
	"net.cidr_":     "net.cidr_contains, which takes addresses and CIDRs",
	"net.lookup_":   "addresses in data.parameters",
	"numbers.range": "a list in data.parameters, or a comparison in place of a range",
	"opa.runtime":   "data.parameters",
	"providers.":    "facts, which read objects of the cluster",
	"rand.":         "a field of the request, such as input.request.uid: the same request must get the same decision",
	"re_match":      "regex.match",
	"regex.":        "regex.match, regex.split or regex.replace",
	"rego.metadata": "texts in the rules themselves",
	"rego.parse":    "data.parameters for what is to be configured",
	"strings.re":    "a template string: $\"{name} is busy\"",
	"strings.split": "split and array.slice",
	"time.now_ns":   "input.now, the time of the decision: time.parse_rfc3339_ns(input.now)",
	"trace":         "print",
	"uri.":          "regex.match or split",
	"urlquery.":     "urlquery.encode or urlquery.decode for one value",
	"uuid.":         "input.request.uid or metadata.uid of an object; for a pattern, regex.match",
	"yaml.":         "json.marshal or json.unmarshal",
	"all":           "`every`",
	"any":           "`some`",
	"base64url.":    "base64url.encode and trim_right(text, \"=\")",
}

// Withheld returns what to use instead of a builtin that policies may not call; "" for other names.
func Withheld(name string) string {
	if b, known := ast.BuiltinMap[name]; !known || isUsable(b) || strings.HasPrefix(name, "internal.") {
		return ""
	}
	use, length := "", 0
	for prefix, this := range alternatives {
		if strings.HasPrefix(name, prefix) && len(prefix) > length {
			use, length = this, len(prefix)
		}
	}
	return use
}
