package engine

import "testing"

// What policies made is compared by what it is; a text that was not read yet is never the same as what a policy made.
func TestSameDocuments(t *testing.T) {
	made := func(v any) Value {
		value, err := ValueOf(v)
		if err != nil {
			t.Fatal(err)
		}
		return valueOf(value.orNull())
	}
	read, err := ParseValue([]byte(`{"a": 1}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		a, b Value
		want bool
	}{
		"equal":             {made("x"), made("x"), true},
		"different":         {made("x"), made("y"), false},
		"nothing":           {Value{}, Value{}, true},
		"read and itself":   {read, read, true},
		"made and read":     {made("x"), read, false},
		"a list and itself": {List([]Value{made("x")}), List([]Value{made("x")}), true},
		"a list and a text": {List([]Value{made("x")}), made("x"), false},
	} {
		if got := sameDocument(tc.a, tc.b); got != tc.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}
