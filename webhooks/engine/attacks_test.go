package engine

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"sallyport.dev/sallyport/webhooks/engine/builtins"
)

// Classes of attacks that other policy engines have been open to. docs/security.md lists them.

const harmlessRules = "valid_input if true\n\nwarn contains \"w\" if input.request.x\n\n"

// "Engine sandbox", CVE-2022-36085: a builtin that is not allowed can be reached by no name, and not by taking the place of one that is.
func TestSandboxHoldsBehindWith(t *testing.T) {
	allowed := map[string]bool{}
	for _, b := range builtins.Capabilities().Builtins {
		allowed[b.Name] = true
		if b.IsNondeterministic() {
			t.Errorf("%s is allowed, and does not give the same each time", b.Name)
		}
	}
	refused := 0
	for _, b := range ast.CapabilitiesForThisVersion().Builtins {
		if allowed[b.Name] || strings.HasPrefix(b.Name, "internal.") {
			continue
		}
		refused++
		arguments := strings.TrimSuffix(strings.Repeat("input, ", b.Decl.Arity()), ", ")
		for how, rules := range map[string]string{
			"called":             fmt.Sprintf("_x := %s(%s)\n", b.Name, arguments),
			"in place of count":  fmt.Sprintf("_x if count([1]) == 2 with count as %s\n", b.Name),
			"in place of a rule": fmt.Sprintf("_f(x) := x\n\n_x if _f([1]) == 2 with _f as %s\n", b.Name),
			"replaced":           fmt.Sprintf("_x if count([1]) == 2 with %s as 3\n", b.Name),
		} {
			if _, err := compile(policy(harmlessRules + rules)); err == nil {
				t.Errorf("%s, %s, compiles", b.Name, how)
			}
		}
	}
	if refused < 50 {
		t.Errorf("only %d builtins were tried", refused)
	}
}

// "Engine parser", CVE-2022-28946 and CVE-2022-33082: no text makes the parser or the compiler panic or use up the stack, which would end
// the process for all policies. FuzzCompile looks for others.
func TestParserTakesCraftedText(t *testing.T) {
	for name, text := range map[string]string{
		"a dot":               ".",
		"an empty reference":  "x := data[]",
		"half a text":         "x := \"",
		"a NUL":               "x := \"\x00\"",
		"no UTF-8":            "x := \"\xff\xfe\"",
		"with and nothing":    "x if true with input",
		"with twice":          "x if { y with input as 1 with input as 2 }",
		"every of nothing":    "x if { every y in }",
		"a huge number":       "x := 1e999999999",
		"a head of calls":     "f(f(f(1))) := 1",
		"a key of itself":     "x[x] := x[x]",
		"rules in a circle":   "x if y\n\ny if x",
		"an empty template":   "x := $\"{}\"",
		"templates in each":   "x := " + strings.Repeat(`$"{`, 100) + "1" + strings.Repeat(`}"`, 100),
		"annotations of none": "# METADATA\n# scope: rule",
		"YAML that grows":     "# METADATA\n# custom:\n#  a: &a [1, 1]\n#  b: &b [*a, *a]\n#  c: &c [*b, *b]\nx := 1",
	} {
		if _, err := compile(policy(harmlessRules + text + "\n")); err != nil {
			wantPlaces(t, name, err)
		}
	}
	for _, open := range []string{"[", "{", "(", "x[", "f(", `$"{`, "{x | ", "[x | some x in "} {
		_, err := compile(policy(harmlessRules + "x := " + strings.Repeat(open, 10_000/len(open)) + "\n"))
		if err == nil {
			t.Errorf("%s, for ever, compiles", open)
			continue
		}
		wantPlaces(t, open, err)
	}
}

// "Policy-driven denial of service", by a text that is short: OPA's compiler takes twice as long for each of these that is in another one,
// a day for thirty, and who writes the policy is not the only one to wait.
func TestTextThatTakesForeverToCompile(t *testing.T) {
	for name, tc := range map[string]struct{ open, innermost, close string }{
		"lists":              {"[y | y := ", "1", "]"},
		"sets":               {"{y | y := ", "1", "}"},
		"objects":            {`{"k": y | y := `, "1", "}"},
		"templates":          {`$"{`, "1", `}"`},
		"every":              {"[1 | every y in [1] { y == ", "1", "}]"},
		"negated":            {"[1 | not ", "true", "]"},
		"beside what is not": {"[y | y := [1, input.x, ", "1", "][0]]"},
		"in what is asked":   {"count([y | some y in ", "[1]", "])"},
	} {
		for depth, fits := range map[int]bool{2: true, 30: false} {
			_, err := compile(policy(harmlessRules + "x := " + strings.Repeat(tc.open, depth) + tc.innermost + strings.Repeat(tc.close, depth) + "\n"))
			if deep := err != nil && strings.Contains(err.Error(), "nested more than 6 deep"); deep == fits {
				t.Errorf("%s, %d of them: got %v", name, depth, err)
			}
			if !fits {
				wantPlaces(t, name, err)
			}
		}
	}
}

// wantPlaces wants all that is wrong with a text to be told by the compiler, with a place, and not by a panic.
func wantPlaces(t *testing.T, name string, err error) {
	t.Helper()
	var all CompileErrors
	if !errors.As(err, &all) || len(all) == 0 || all[0].File == "" || all[0].Message == "" {
		t.Errorf("%s: got %.300v", name, err)
	}
}

// "SSRF from a policy's context": nothing that is written in a policy makes Sallyport ask another server, when it is compiled or when
// it decides.
func TestSSRFFromAPolicysContext(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = w.Write([]byte(`{"type": "object"}`))
	}))
	defer server.Close()
	for name, rules := range map[string]string{
		"a request":             `warn contains "w" if http.send({"method": "get", "url": "URL"}).status_code == 200`,
		"a request behind with": `warn contains "w" if object.get({"method": "get", "url": "URL"}, "a", 1) with object.get as http.send`,
		"an address":            `warn contains "w" if net.lookup_ip_addr("localhost")`,
		"a schema":              `warn contains "w" if json.match_schema(input.request, {"$ref": "URL"})[0]`,
		"a schema of METADATA":  "# METADATA\n# schemas:\n# - input.request: {$ref: \"URL\"}\nwarn contains \"w\" if input.request.x",
		"a part of such a schema": "# METADATA\n# scope: rule\n# schemas:\n# - input: {type: object, properties: {request: {$ref: \"URL\"}}}\n" +
			"warn contains \"w\" if input.request.x",
		"a key of a token": `warn contains "w" if io.jwt.decode_verify("x", {"cert": "URL"})`,
	} {
		p, err := compile(policy("valid_input if true\n\n" + strings.ReplaceAll(rules, "URL", server.URL) + "\n"))
		if err == nil {
			_, err = p.Decide(t.Context(), input(t, `{"x": 1}`), nil)
		}
		if described := strings.Contains(rules, "METADATA"); (err == nil) != described { // what METADATA says of types is not looked at
			t.Errorf("%s: got %v", name, err)
		}
		if n := asked.Swap(0); n > 0 {
			t.Errorf("%s: the server was asked %d times", name, n)
		}
	}
	// A URL that a requester writes is a text.
	source := policy(harmlessRules)
	source.Schema = []byte(`{"type": "object", "properties": {"request": {"$ref": "` + server.URL + `"}}}`)
	if _, err := compile(source); err == nil || asked.Load() > 0 {
		t.Errorf("the schema of the input was fetched from elsewhere: %v", err)
	}
}

// "Confused deputy", the reconnaissance by can_i: a policy asks about the requester and nobody else, and for what it has declared; what it
// would learn otherwise comes with Sallyport's rights and goes to whoever can read a denial.
func TestConfusedDeputy(t *testing.T) {
	for name, fact := range map[string]string{
		"the rights of another user":   `{"access": {"verb": "get", "resource": "books", "user": "root"}}`,
		"the rights of a group":        `{"access": {"verb": "get", "resource": "books", "groups": ["system:masters"]}}`,
		"by an identity of its own":    `{"apiVersion": "toy/v1", "kind": "Loan", "as": "root"}`,
		"another kind":                 `{"apiVersion": "v1", "kind": "Secret"}`,
		"the kind of another group":    `{"apiVersion": "other/v1", "kind": "Loan"}`,
		"another version":              `{"apiVersion": "toy/v2", "kind": "Loan"}`,
		"a kind as the requester says": `{"apiVersion": input.request.apiVersion, "kind": input.request.kind, "name": "x"}`,
		"a path":                       `{"urlPath": "/api/v1/namespaces/kube-system/secrets"}`,
		"a field that is not declared": `{"apiVersion": "toy/v1", "kind": "Loan", "fields": {"secret": "x"}}`,
	} {
		s := &shelf{}
		p := mustCompile(t, policy("facts.x := object.union({}, "+fact+")\n\n"+harmlessRules)) // or it would not compile
		_, err := p.Decide(t.Context(), input(t, `{"apiVersion": "v1", "kind": "Secret"}`), s)
		var e *Error
		if !errors.As(err, &e) || e.Cause != ContractViolated {
			t.Errorf("%s: got %v, want %s", name, err, ContractViolated)
		}
		if len(s.asked) > 0 {
			t.Errorf("%s: it was read all the same: %+v", name, s.asked)
		}
	}
}

// "Regex blow-up": patterns and texts for which a backtracking matcher takes for ever. No machine is slow enough for these to meet the
// deadline, which is half a minute, and none fast enough for the other kind of matcher.
func TestRegexBlowUp(t *testing.T) {
	text := strings.Repeat("a", 10_000) + "!"
	for _, condition := range []string{
		`regex.match("^(a+)+$", input.request.text)`,
		`regex.match("^(a|aa)+$", input.request.text)`,
		`regex.match("^([a-zA-Z]+)*$", input.request.text)`,
		`regex.match("(.*a){20}$", input.request.text)`,
		`count(regex.split("(a*)*b", input.request.text)) == 9`,
		`regex.replace(input.request.text, "(a+)+$", "b") == "x"`,
		`glob.match("*a*a*a*b", [], substring(input.request.text, 0, 60))`,
	} {
		source := policy("valid_input if true\n\nwarn contains \"w\" if " + condition + "\n")
		source.Timeout = 30 * time.Second
		if d, err := mustCompile(t, source).Decide(t.Context(), Input{Request: mustValue(t, map[string]any{"text": text})}, nil); err != nil || len(d.Warnings) > 0 {
			t.Errorf("%s: got %+v, %v", condition, d, err)
		}
	}
}

// "Policy-driven denial of service", by requests: a document that nests nearly as deeply as JSON may, with long names and long texts, costs one
// decision at most.
func TestRequestsThatWearOutBuiltins(t *testing.T) {
	const levels = 9_000
	deep := strings.Repeat(`{"a":`, levels) + "1" + strings.Repeat("}", levels)
	text := []byte(`{"text": "` + strings.Repeat("[", 1<<17) + `", "a": ` + deep + `, "` + strings.Repeat("k", 1<<17) + `": 1}`)
	for _, condition := range []string{
		`walk(input.request, [_, 9])`, `input.request == {"a": 7}`, `json.marshal(input.request.a) == "7"`, `input.request in {1}`,
		`object.union(input.request, {}) == {"b": 7}`, `sprintf("%v", [input.request.a]) == "7"`, `$"{input.request.a}" == "1"`, `count(object.keys(input.request)) == 7`,
		`json.is_valid(input.request.text)`, `json.unmarshal(input.request.text) == 3`, `object.subset(input.request, {"a": {"b": 1}})`,
		`json.remove(input.request, ["a/a/a"]) == {}`, `json.filter(input.request, ["a/a/a"]) == {"a": 1}`, `to_number(input.request.text) == 1`,
		`count(split(input.request.text, "")) == 1`, `units.parse(input.request.text) == 1`, `semver.is_valid(input.request.text)`,
		`time.parse_duration_ns(input.request.text) == 1`, `net.cidr_is_valid(input.request.text)`, `base64.decode(input.request.text) == ""`,
		`regex.match(input.request.text, "x")`, `glob.match(input.request.text, [], "x")`, `format_int(count(input.request.text), 2) == "1"`,
	} {
		source := policy("valid_input if true\n\nwarn contains \"w\" if " + condition + "\n")
		p, err := compile(source)
		if err != nil {
			t.Errorf("%s: %v", condition, err)
			continue
		}
		d, err := p.Decide(t.Context(), Input{Request: Text(text)}, nil)
		var e *Error
		if errors.As(err, &e) && e.Cause != EvaluationFailed || err == nil && len(d.Warnings) > 0 {
			t.Errorf("%s: got %+v, %.300v", condition, d, err)
		}
	}
}
