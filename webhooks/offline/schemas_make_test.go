package offline_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"pgregory.net/rapid"
)

// place is a field in the schema of a kind, or an entry of one.
type place struct {
	path   string
	schema *apiextensionsv1.JSONSchemaProps
	fields map[string]*place
	entry  *place // of a list or map
	valid  func(value any) bool
	good   []any // values that were found to be valid
	aimed  bool  // an object that has it is wanted; see aim
}

// newPlace takes a schema apart.
func newPlace(t *testing.T, path string, s *apiextensionsv1.JSONSchemaProps) *place {
	t.Helper()
	p := &place{path: path, schema: s, fields: map[string]*place{}, valid: validator(t, s)}
	for name := range s.Properties {
		property := s.Properties[name]
		p.fields[name] = newPlace(t, path+"."+name, &property)
	}
	if s.Items != nil {
		p.entry = newPlace(t, path+"[]", s.Items.Schema)
	} else if s.AdditionalProperties != nil {
		p.entry = newPlace(t, path+"{}", s.AdditionalProperties.Schema)
	}
	return p
}

// validator is the API server's, for values of one field.
func validator(t *testing.T, s *apiextensionsv1.JSONSchemaProps) func(any) bool {
	t.Helper()
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(s.DeepCopy(), internal, nil); err != nil {
		t.Fatal(err)
	}
	structural, err := structuralschema.NewStructural(internal)
	if err != nil {
		t.Fatal(err)
	}
	openAPI, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		t.Fatal(err)
	}
	rules := cel.NewValidator(structural, false, celconfig.PerCallLimit)
	return func(value any) bool {
		if len(validation.ValidateCustomResource(nil, value, openAPI)) > 0 {
			return false
		}
		if rules == nil {
			return true
		}
		broken, _ := rules.Validate(t.Context(), nil, structural, value, nil, celconfig.RuntimeCELCostBudget)
		return len(broken) == 0
	}
}

// all are the place and those below it.
func (p *place) all() []*place {
	found := []*place{p}
	for _, name := range slices.Sorted(maps.Keys(p.fields)) {
		found = append(found, p.fields[name].all()...)
	}
	if p.entry != nil {
		found = append(found, p.entry.all()...)
	}
	return found
}

// aim has values be made that have the place of that path: objects have the fields that lead there, whatever else they lack.
func (p *place) aim(path string) {
	p.aimed = path == p.path || strings.HasPrefix(path, p.path) && strings.ContainsRune(".[{", rune(path[len(p.path)]))
	for _, field := range p.fields {
		field.aim(path)
	}
	if p.entry != nil {
		p.entry.aim(path)
	}
}

// words are what fields of ours hold that no pattern tells.
var words = []any{
	"a", "b.rego", "c_test.rego", "/dc-1/vm/a", "/dc-1/vm/b", "https://vc.example.org", "https://vc.example.org/a.ova", "-----BEGIN CERTIFICATE-----",
	strings.TrimSuffix(strings.Repeat("AB:", 32), ":"), "sallyport.a", "sallyport.lib.a", "72h", "40Gi", "50%", "v1", "sallyport.dev/v1alpha1",
	"2026-05-04T03:02:01.000000Z", strings.Repeat("ab", 32), "CREATE", "*", "name: b", "In",
}

// make makes a valid value. It panics if it finds none.
func (p *place) make(r *rand.Rand) any {
	for range 300 {
		if value := p.guess(r); p.valid(value) {
			return value
		}
	}
	panic("found nothing valid for " + p.path)
}

func (p *place) guess(r *rand.Rand) any {
	s := p.schema
	switch {
	case len(s.Enum) > 0:
		var word any
		if err := json.Unmarshal(s.Enum[r.IntN(len(s.Enum))].Raw, &word); err != nil {
			panic(err)
		}
		return word
	case s.Type == "object" && p.entry == nil:
		return p.guessObject(r)
	case s.Type == "object":
		entries := map[string]any{}
		for i := range 1 + r.Int64N(min(2, orMax(s.MaxProperties))) {
			entries[fmt.Sprintf("key-%d", i)] = p.entry.make(r)
		}
		return entries
	case s.Type == "array":
		return p.guessList(r)
	case s.Type == "boolean":
		return r.IntN(2) == 0
	case s.Type == "integer":
		least, most := int64(0), int64(math.MaxInt32)
		if s.Minimum != nil {
			least = int64(*s.Minimum)
		}
		if s.Maximum != nil {
			most = int64(*s.Maximum)
		}
		return least + r.Int64N(min(most-least, 10)+1)
	}
	return p.guessString(r)
}

func (p *place) guessString(r *rand.Rand) any {
	if len(p.good) == 0 {
		p.good = slices.DeleteFunc(slices.Clone(words), func(word any) bool { return !p.valid(word) })
		if len(p.good) == 0 {
			p.good = append(p.good, matching(p.schema.Pattern, r))
		}
	}
	if r.IntN(4) > 0 {
		return p.good[0] // so that names of one object are those of another
	}
	return p.good[r.IntN(len(p.good))]
}

// matching makes a string that matches a pattern.
func matching(pattern string, r *rand.Rand) string {
	return rapid.StringMatching(pattern).Example(r.IntN(1 << 30))
}

func (p *place) guessList(r *rand.Rand) []any {
	least := int64(1)
	if p.schema.MinItems != nil {
		least = max(least, *p.schema.MinItems)
	}
	list := make([]any, 0, least)
	for range least + r.Int64N(min(2, orMax(p.schema.MaxItems)-least+1)) {
		entry := p.entry.make(r)
		if !slices.ContainsFunc(list, func(other any) bool { return p.same(other, entry) }) {
			list = append(list, entry)
		}
	}
	return list
}

// same tells whether two entries of a list are one to the API server.
func (p *place) same(a, b any) bool {
	if keys := p.schema.XListMapKeys; len(keys) > 0 {
		return !slices.ContainsFunc(keys, func(key string) bool { return a.(map[string]any)[key] != b.(map[string]any)[key] })
	}
	return fmt.Sprint(a) == fmt.Sprint(b)
}

// guessObject makes the fields once, and then looks for some of them that are valid together. If another field is aimed at, it may have
// none but those that are required.
func (p *place) guessObject(r *rand.Rand) map[string]any {
	made, names, shares := map[string]any{}, slices.Sorted(maps.Keys(p.fields)), []int{30, 70, 95}
	needed := func(name string) bool { return slices.Contains(p.schema.Required, name) || p.fields[name].aimed }
	for _, name := range names {
		made[name] = p.fields[name].make(r)
		if p.fields[name].aimed {
			shares = []int{0, 0, 30, 70, 95}
		}
	}
	var chosen map[string]any
	for range 30 {
		chosen = map[string]any{}
		share := shares[r.IntN(len(shares))]
		for _, name := range names {
			if needed(name) || r.IntN(100) < share {
				chosen[name] = made[name]
			}
		}
		if p.valid(chosen) {
			break
		}
	}
	return chosen
}

func orMax(n *int64) int64 {
	if n == nil {
		return math.MaxInt32
	}
	return *n
}

// odd makes a value that a program may stumble over, valid or not.
func (p *place) odd(r *rand.Rand) any {
	s := p.schema
	odd := slices.Clone(anywhere)
	for _, bound := range []*float64{s.Minimum, s.Maximum} {
		if bound != nil {
			odd = append(odd, int64(*bound)-1, int64(*bound), int64(*bound)+1)
		}
	}
	if s.Type == "string" || s.XIntOrString {
		odd = append(odd, strange...)
		if s.Pattern != "" {
			fits := func() any { return matching(s.Pattern, r) }
			almost := func() any { return nearly(matching(s.Pattern, r), r) }
			odd = append(odd, fits, fits, fits, almost, almost)
		}
		for _, letter := range []string{"9", "a", "\U0001F600", "\x00", `"`} {
			odd = append(odd, func() any { return strings.Repeat(letter, int(min(orMax(s.MaxLength), 1<<16))) })
		}
		for _, word := range quantitiesAndTimes {
			odd = append(odd, word)
		}
	}
	if p.entry != nil {
		odd = append(odd, func() any { return p.many(r) })
	}
	chosen := odd[r.IntN(len(odd))]
	if makes, is := chosen.(func() any); is {
		return makes()
	}
	return chosen
}

// nearly changes one character.
func nearly(text string, r *rand.Rand) string {
	letters := []rune(text)
	if len(letters) == 0 {
		return "x"
	}
	others := []rune("0129.eEimnKkTtZz+-:, []\U0001F600")
	letters[r.IntN(len(letters))] = others[r.IntN(len(others))]
	return string(letters)
}

// many makes a list or map as large as it may be, or rather large.
func (p *place) many(r *rand.Rand) any {
	entry := p.entry.make(r)
	if p.schema.Type == "object" {
		entries := map[string]any{}
		for i := range min(orMax(p.schema.MaxProperties), 5000) {
			entries[fmt.Sprintf("key-%d", i)] = entry
		}
		return entries
	}
	list := make([]any, min(orMax(p.schema.MaxItems), 5000))
	for i := range list {
		list[i] = entry
		if fields, ok := entry.(map[string]any); ok {
			fields = maps.Clone(fields)
			for _, key := range append(slices.Clone(p.schema.XListMapKeys), "folder") {
				if text, ok := fields[key].(string); ok {
					fields[key] = digit.ReplaceAllString(text, "") + fmt.Sprint(i)
				}
			}
			list[i] = fields
		} else if text, ok := entry.(string); ok {
			list[i] = text + fmt.Sprint(i)
		}
	}
	return list
}

var digit = regexp.MustCompile(`[0-9]+$`)
