package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/charts"
)

// unbounded are types that decode themselves and need no bounds here, and why not.
var unbounded = map[reflect.Type]string{
	reflect.TypeFor[metav1.Duration]():      "CEL reads it with the same parser, and has no duration that Go does not have",
	reflect.TypeFor[runtime.RawExtension](): "it takes any object",
}

// A field of a type that decodes itself takes less than its schema, unless that is bounded: a type that comes later is not forgotten.
func TestTypesThatDecodeThemselvesAreBounded(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var walk func(is reflect.Type, path string)
	walk = func(is reflect.Type, path string) {
		switch is.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(is.Elem(), path)
			return
		case reflect.Interface, reflect.Float32, reflect.Float64, reflect.Int8, reflect.Int16, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
			t.Errorf("%s is %s, of which the schema does not know the limits", path, is)
		}
		if reflect.PointerTo(is).Implements(reflect.TypeFor[json.Unmarshaler]()) {
			if bounds[is] == nil && unbounded[is] == "" {
				t.Errorf("%s is %s, which decodes itself and has no bounds", path, is)
			}
			return
		}
		if is.Kind() != reflect.Struct || seen[is] {
			return
		}
		seen[is] = true
		for field := range is.Fields() {
			walk(field.Type, path+"."+field.Name)
		}
	}
	for _, kind := range v1alpha1.Kinds {
		for _, part := range []string{"Spec", "Status"} {
			field, _ := reflect.TypeOf(kind.Object).Elem().FieldByName(part)
			walk(field.Type, kind.Name+"."+part)
		}
	}
}

// What the patterns admit, Go reads, and writes as something that they admit.
func TestBoundsHoldWhatGoWrites(t *testing.T) {
	for is, set := range bounds {
		var s apiextensionsv1.JSONSchemaProps
		if set(&s); s.Pattern == "" {
			continue
		}
		pattern := regexp.MustCompile(s.Pattern)
		for i := range 5000 {
			text := rapid.StringMatching(s.Pattern).Example(i)
			if s.MinItems != nil { // its format sees to the calendar
				text = text[:4] + fmt.Sprintf("-%02d-%02dT%02d:%02d:%02d", 1+i%12, 1+i%28, i%24, i%60, i%60) + text[len("2026-05-04T03:02:01"):]
			}
			value := reflect.New(is).Interface()
			if err := json.Unmarshal(fmt.Appendf(nil, "%q", text), value); err != nil {
				t.Errorf("%s: %q: %v", is, text, err)
				continue
			}
			var again string
			if written, err := json.Marshal(value); err != nil || json.Unmarshal(written, &again) != nil || !pattern.MatchString(again) || int64(len(again)) > *s.MaxLength {
				t.Errorf("%s: %q is written as %s: %v", is, text, written, err)
			}
		}
	}
}

// Every quantity and every time of every kind is bounded in what the chart installs, however deep it stands.
func TestQuantitiesAndTimesAreBounded(t *testing.T) {
	crds, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	quantities, times := 0, 0
	var walk func(path string, s *apiextensionsv1.JSONSchemaProps)
	walk = func(path string, s *apiextensionsv1.JSONSchemaProps) {
		switch {
		case s.XIntOrString:
			quantities++
			if s.MaxLength == nil || s.Minimum == nil || s.Maximum == nil || s.Pattern == "" && len(s.XValidations) == 0 {
				t.Errorf("%s is not bounded", path)
			}
		case s.Format == "date-time":
			times++
			if s.MaxLength == nil || s.Pattern == "" || s.MinItems == nil || s.MaxItems == nil || *s.MinItems <= *s.MaxItems {
				t.Errorf("%s is not bounded", path)
			}
		}
		for name, property := range s.Properties {
			walk(path+"."+name, &property)
		}
		if s.Items != nil {
			walk(path+"[]", s.Items.Schema)
		}
		if s.AdditionalProperties != nil {
			walk(path+"{}", s.AdditionalProperties.Schema)
		}
	}
	for _, crd := range crds {
		for _, version := range crd.Spec.Versions {
			walk(crd.Spec.Names.Kind, version.Schema.OpenAPIV3Schema)
		}
	}
	if quantities < 10 || times < 20 {
		t.Errorf("found %d quantities and %d times", quantities, times)
	}
}
