package decoding

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

var (
	errDeep     = fmt.Errorf("objects or lists are nested more than %d levels deep", maxDepth)
	errQuantity = errors.New("the quantity has too many digits")

	unmarshaler = reflect.TypeFor[json.Unmarshaler]()
	quantity    = reflect.TypeFor[resource.Quantity]()
)

// fault returns the path and the error of the first value that does not decode into a type. Go's decoder does not name the field of types
// with their own decoder, such as quantities and times, and does not return for some quantities.
func fault(t reflect.Type, text []byte, path []string) ([]string, error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case string(text) == "null":
		return path, nil
	case t == quantity && isLongNumber([]byte(strings.TrimSpace(textOf(text)))):
		return path, errQuantity
	case reflect.PointerTo(t).Implements(unmarshaler):
		return path, utiljson.Unmarshal(text, reflect.New(t).Interface())
	}
	switch t.Kind() {
	case reflect.Struct:
		return faultOfFields(t, text, path)
	case reflect.Slice:
		var items []json.RawMessage
		if t.Elem().Kind() == reflect.Uint8 || json.Unmarshal(text, &items) != nil {
			break
		}
		for i, item := range items {
			if at, err := fault(t.Elem(), item, append(path, "["+strconv.Itoa(i)+"]")); err != nil {
				return at, err
			}
		}
		return path, nil
	case reflect.Map:
		var members map[string]json.RawMessage
		if json.Unmarshal(text, &members) != nil {
			break
		}
		for _, name := range slices.Sorted(maps.Keys(members)) {
			if at, err := fault(t.Elem(), members[name], append(path, name)); err != nil {
				return at, err
			}
		}
		return path, nil
	}
	return path, utiljson.Unmarshal(text, reflect.New(t).Interface())
}

func faultOfFields(t reflect.Type, text []byte, path []string) ([]string, error) {
	var members map[string]json.RawMessage
	if json.Unmarshal(text, &members) != nil {
		return path, utiljson.Unmarshal(text, reflect.New(t).Interface())
	}
	for i := range t.NumField() {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		value, at := json.RawMessage(text), path
		if !field.Anonymous || name != "" && !strings.Contains(options, "inline") {
			value, at = members[name], slices.Concat(path, []string{name})
		}
		if value == nil {
			continue
		}
		if at, err := fault(field.Type, value, at); err != nil {
			return at, err
		}
	}
	return path, nil
}
