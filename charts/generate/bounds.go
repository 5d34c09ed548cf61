package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// What controller-gen writes for types of Kubernetes admits values that Go does not decode, and one of them is enough that no client can
// list the kind any more. These schemas admit what Go decodes at once, and what Go then writes.
//
// A pattern does not keep the API server from evaluating the CEL rules of a field (only a wrong type, a missing or an unknown value and
// maxLength do), so a rule must be able to bear what the pattern refuses: see VirtualDiskSpec.
var bounds = map[reflect.Type]func(*apiextensionsv1.JSONSchemaProps){
	reflect.TypeFor[resource.Quantity](): func(s *apiextensionsv1.JSONSchemaProps) {
		s.Pattern, s.MaxLength = quantity(), new(int64(digits+len("m")))
		s.Minimum, s.Maximum = new(float64(0)), new(math.Pow10(digits))
	},
	reflect.TypeFor[intstr.IntOrString](): func(s *apiextensionsv1.JSONSchemaProps) {
		s.MaxLength = new(int64(len("100%")))
		s.Minimum, s.Maximum = new(float64(0)), new(float64(math.MaxInt32))
	},
	reflect.TypeFor[metav1.Time]():      func(s *apiextensionsv1.JSONSchemaProps) { instant(s, `(\.[0-9]{1,9})?`, 10) },
	reflect.TypeFor[metav1.MicroTime](): func(s *apiextensionsv1.JSONSchemaProps) { instant(s, `\.[0-9]{6}`, 7) },
}

// digits is how many a quantity may have. It stays below the 2^63 at which Go cuts quantities.
const digits = 18

// quantity is the pattern of a quantity that is not negative, in bytes, say. Whatever it admits, Go writes as something that it admits:
// with three decimals before a unit of 10 or 2 to some power, the value is a number of thousandths, which Go writes with an m.
func quantity() string {
	whole := []string{fmt.Sprintf("[0-9]{1,%d}m?", digits)}
	for i, unit := range []string{"k|Ki", "M|Mi", "G|Gi", "T|Ti", "P|Pi"} {
		whole = append(whole, fmt.Sprintf("[0-9]{1,%d}(%s|e%d)", digits-3*(i+1), unit, 3*(i+1)))
	}
	return "^(" + strings.Join(append(whole, "[0-7](E|Ei|e18)",
		`[0-9]{0,5}\.[0-9]{1,3}(k|Ki|M|Mi|G|Gi|e3|e6|e9)?`, `[0-9]{0,2}\.[0-9]{1,3}(T|Ti|e12)`), "|") + ")$"
}

// instant bounds a time. Its format alone admits small letters, a list, and offsets that no clock has; it sees to the calendar, though.
// The years are those in which a time is a time of that pattern in UTC, too, which is how Go writes it: the first year of all is Go's
// zero, which it writes as null.
func instant(s *apiextensionsv1.JSONSchemaProps, fraction string, most int) {
	clock := `-[0-9-]{5}T[0-9:]{8}` + fraction
	s.Pattern = `^([12][0-9]{3}` + clock + `Z|20[0-9]{2}` + clock + `[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	s.MaxLength = new(int64(len("2006-01-02T15:04:05") + most + len("+00:00")))
	s.MinItems, s.MaxItems = new(int64(1)), new(int64(0)) // no list is both
}

// bound bounds what the definitions in a folder say of types of Kubernetes.
func bound(folder string) error {
	for i := range v1alpha1.Kinds {
		kind := &v1alpha1.Kinds[i]
		file := filepath.Join(folder, v1alpha1.GroupName+"_"+kind.Resource()+".yaml")
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, crd); err != nil {
			return fmt.Errorf("decoding %s: %w", file, err)
		}
		for i := range crd.Spec.Versions {
			root := crd.Spec.Versions[i].Schema.OpenAPIV3Schema
			for _, part := range []string{"spec", "status"} {
				boundField(reflect.TypeOf(kind.Object).Elem(), root, part)
			}
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
		if err != nil {
			return err
		}
		delete(content, "status") // which controller-gen leaves out, too
		if text, err = yaml.Marshal(content); err != nil {
			return err
		}
		if err := os.WriteFile(file, append([]byte("---\n"), text...), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// boundType bounds a schema that is of a Go type, with all that is in it.
func boundType(is reflect.Type, s *apiextensionsv1.JSONSchemaProps) {
	if set := bounds[is]; set != nil {
		set(s)
		return
	}
	switch {
	case is.Kind() == reflect.Pointer:
		boundType(is.Elem(), s)
	case s.Items != nil:
		boundType(is.Elem(), s.Items.Schema)
	case s.AdditionalProperties != nil:
		boundType(is.Elem(), s.AdditionalProperties.Schema)
	default:
		for name := range s.Properties {
			boundField(is, s, name)
		}
	}
}

// boundField bounds the field of that name in JSON.
func boundField(of reflect.Type, s *apiextensionsv1.JSONSchemaProps, name string) {
	fields := reflect.VisibleFields(of)
	i := slices.IndexFunc(fields, func(f reflect.StructField) bool {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		return tag == name
	})
	property := s.Properties[name]
	boundType(fields[i].Type, &property)
	s.Properties[name] = property
}
