package statuses

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
)

// bound has the limits of a schema for one value.
type bound struct {
	apiextensionsv1.JSONSchemaProps
	pattern    *regexp.Regexp
	values     []string
	properties map[string]*bound
	each       *bound   // for the items of a list or the values of a map
	key        []string // the fields that identify an item of a list; "" is the item itself
}

func newBound(s apiextensionsv1.JSONSchemaProps) (b *bound, err error) {
	b = &bound{JSONSchemaProps: s, properties: map[string]*bound{}}
	if b.pattern, err = regexp.Compile(s.Pattern); err != nil {
		return nil, fmt.Errorf("reading the pattern %q: %w", s.Pattern, err)
	}
	for _, value := range s.Enum {
		b.values = append(b.values, strings.Trim(string(value.Raw), `"`))
	}
	for name, property := range s.Properties {
		if b.properties[name], err = newBound(property); err != nil {
			return nil, err
		}
	}
	switch {
	case s.Items != nil && s.Items.Schema != nil:
		b.each, err = newBound(*s.Items.Schema)
	case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		b.each, err = newBound(*s.AdditionalProperties.Schema)
	}
	switch ptr.Deref(s.XListType, "") {
	case "map":
		b.key = s.XListMapKeys
	case "set":
		b.key = []string{""}
	}
	return b, err
}

// fit returns a copy of the value that the schema admits, and false if there is none. It cuts texts, lists and maps, and moves numbers into
// their range. It leaves out values that are still invalid, and objects that require such a value.
func (b *bound) fit(value any) (any, bool) {
	switch value := value.(type) {
	case string:
		return b.text(value)
	case int64:
		return b.number(value), true
	case []any:
		return b.list(value), true
	case map[string]any:
		return b.object(value)
	}
	return value, true
}

func (b *bound) text(value string) (any, bool) {
	if b.MaxLength != nil && int64(utf8.RuneCountInString(value)) > *b.MaxLength {
		value = string([]rune(value)[:*b.MaxLength])
	}
	valid := int64(utf8.RuneCountInString(value)) >= ptr.Deref(b.MinLength, 0) && b.pattern.MatchString(value)
	return value, valid && (len(b.values) == 0 || slices.Contains(b.values, value))
}

func (b *bound) number(value int64) int64 {
	if b.Maximum != nil {
		value = min(value, int64(*b.Maximum))
	}
	if b.Minimum != nil {
		value = max(value, int64(*b.Minimum))
	}
	return value
}

func (b *bound) list(value []any) []any {
	fitted, there := []any{}, map[string]bool{}
	for _, item := range value {
		if b.MaxItems != nil && int64(len(fitted)) == *b.MaxItems {
			break
		}
		item, ok := b.each.fit(item)
		if id := b.identity(item); !ok || there[id] {
			continue
		} else if id != "" {
			there[id] = true
		}
		fitted = append(fitted, item)
	}
	return fitted
}

// identity returns the key of an item of a list, which must be unique. It is empty if the list has no keys.
func (b *bound) identity(item any) (id string) {
	for _, key := range b.key {
		of := item
		if object, is := item.(map[string]any); is {
			of = object[key]
		}
		id += fmt.Sprintf("%v\x00", of)
	}
	return id
}

func (b *bound) object(value map[string]any) (any, bool) {
	fitted := map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(value)) {
		of := b.properties[key]
		if of == nil && b.each != nil && (b.MaxProperties == nil || int64(len(fitted)) < *b.MaxProperties) {
			of = b.each
		}
		if of == nil {
			if b.each == nil { // the schema does not have the field
				fitted[key] = value[key]
			}
			continue
		}
		if one, ok := of.fit(value[key]); ok {
			fitted[key] = one
		}
	}
	lacks := func(key string) bool { _, there := fitted[key]; return !there }
	return fitted, !slices.ContainsFunc(b.Required, lacks)
}
