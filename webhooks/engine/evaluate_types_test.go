package engine

import (
	"testing"
)

const typedPolicy = `facts.loans := {"apiVersion": "toy/v1", "kind": "Loan", "namespace": "here", "fields": {"book": "b"}}

facts.member := {"apiVersion": "toy/v1", "kind": "Loan", "name": "m"} if input.request.object.shelf.member

facts.member := null if not input.request.object.shelf.member

facts.right := {"access": {"verb": "get", "resource": "books"}}

valid_input if true

` + denyMetadata + `deny contains {"reason": "R", "message": $"{input.request.object.title}"} if {
	some tag in input.request.object.shelf.tags
	tag == "rare"
	input.request.object.shelf.height > 3
}

` + denyMetadata + `deny contains {"reason": "R", "message": "lent"} if {
	some loan in input.facts.loans
	loan.days > 30
	input.facts.right
	input.facts.member.days != 1
}

` + denyMetadata + `deny contains {"reason": "R", "message": "gone"} if {
	input.request.operation == "DELETE"
	some key, value in input.request.oldObject.labels
	startswith(key, "lent/")
	value == "yes"
}
`

// toyTypes are the types of the kinds Book and Loan.
func toyTypes(_, kind string) *Type {
	text, number := &Type{Kind: StringType}, &Type{Kind: IntegerType}
	labels := &Type{Kind: ObjectType, Nullable: true, Each: text}
	switch kind {
	case "Book":
		return &Type{Kind: ObjectType, Fields: map[string]*Type{
			"title": text, "unread": text, "labels": labels,
			"shelf": {Kind: ObjectType, Fields: map[string]*Type{
				"tags": {Kind: ListType, Nullable: true, Each: text}, "height": {Kind: StringOrNumber}, "member": {Kind: BooleanType},
			}},
		}}
	case "Loan":
		return &Type{Kind: ObjectType, Fields: map[string]*Type{"days": number, "unread": number}}
	}
	return &Type{}
}

func TestTypesOfWhatIsReadAreChecked(t *testing.T) {
	src := policy(typedPolicy)
	src.Types = toyTypes
	p := mustCompile(t, src)
	book := func(object string) string {
		return `{"kind": {"group": "toy", "version": "v1", "kind": "Book"}, "namespace": "here", "object": ` + object + `}`
	}
	deleted := func(object string) string {
		return `{"kind": {"group": "toy", "version": "v1", "kind": "Book"}, "operation": "DELETE", "object": null, "oldObject": ` + object + `}`
	}
	loan := func(days any, namespace string) map[string]any {
		return map[string]any{"days": days, "unread": "x", "metadata": map[string]any{"name": "l", "namespace": namespace}}
	}
	asked := book(`{"shelf": {"member": true}}`)
	for name, tc := range map[string]struct {
		request string
		answers map[string]any
		want    string // "" if it is understood
	}{
		"nothing is wrong":                 {request: book(`{"title": "t", "shelf": {"tags": ["a"], "height": "4"}}`)},
		"a wrong value that is not read":   {request: book(`{"unread": 1, "shelf": {"unknown": 1}}`)},
		"a wrong value only in a message":  {request: book(`{"title": 1}`)},
		"absent":                           {request: book(`{}`)},
		"null for absent":                  {request: book(`{"shelf": {"tags": null}}`)},
		"no object":                        {request: book(`null`)},
		"another kind":                     {request: `{"kind": {"group": "toy", "version": "v1", "kind": "Map"}, "object": {"shelf": 1}}`},
		"a field":                          {request: book(`{"shelf": 1}`), want: "shelf: must be an object, is a number"},
		"an element":                       {request: book(`{"shelf": {"tags": ["a", {}]}}`), want: "shelf.tags[1]: must be a string, is an object"},
		"null":                             {request: book(`{"shelf": null}`), want: "shelf: must be an object, is null"},
		"a number or a string":             {request: book(`{"shelf": {"height": []}}`), want: "shelf.height: must be a string or a number, is a list"},
		"only a fact depends on it":        {request: book(`{"shelf": {"member": "no"}}`), want: "shelf.member: must be a boolean, is a string"},
		"the object":                       {request: book(`"x"`), want: "object: must be an object, is a string"},
		"a member of the old object":       {request: deleted(`{"labels": {"lent/x": 1}}`), want: "oldObject.labels[lent/x]: must be a string, is a number"},
		"no wrong value in the old object": {request: deleted(`{"labels": null, "shelf": 1}`)},
		"an object of a list":              {request: asked, answers: map[string]any{"loans": []any{loan(1, "here"), loan("x", "here")}}, want: "facts.loans: Loan l: days: must be an integer, is a string"},
		"a fraction":                       {request: asked, answers: map[string]any{"loans": []any{loan(1.5, "here")}}, want: "facts.loans: Loan l: days: must be an integer, is a number"},
		"an object of another namespace":   {request: asked, answers: map[string]any{"loans": []any{loan(true, "there")}}, want: "facts.loans: Loan: days: must be an integer, is a boolean"},
		"an answer that is no list":        {request: asked, answers: map[string]any{"loans": "x"}, want: "facts.loans: must be a list, is a string"},
		"an element that is no object":     {request: asked, answers: map[string]any{"loans": []any{1}}, want: "facts.loans: must be an object, is a number"},
		"an object by name":                {request: asked, answers: map[string]any{"member": loan(nil, "")}, want: "facts.member: Loan l: days: must be an integer, is null"},
		"a right":                          {request: asked, answers: map[string]any{"right": "yes"}, want: "facts.right: must be a boolean, is a string"},
		"what is not read of an object":    {request: asked, answers: map[string]any{"loans": []any{loan(1, "here")}}},
		"no answer was needed":             {request: book(`{"shelf": {"member": false}}`), answers: map[string]any{"member": loan("x", "here")}},
	} {
		t.Run(name, func(t *testing.T) {
			answers := map[string]any{"loans": []any{}, "right": true}
			for fact, answer := range tc.answers {
				answers[fact] = answer
			}
			_, err := p.Decide(t.Context(), input(t, tc.request), &shelf{cached: answers, live: answers})
			if tc.want != "" {
				wantCause(t, err, InputNotUnderstood, tc.want)
			} else if err != nil {
				t.Errorf("got %v", err)
			}
		})
	}
}

// The API server validates an object after the mutating webhooks.
func TestTypesOfARequestAreNotCheckedBeforeItIsValidated(t *testing.T) {
	src := policy(`facts.right := {"access": {"verb": "get", "resource": "books"}}

valid_input if true

patch contains {"op": "add", "path": "/lent", "value": true} if {
	input.request.object.shelf != 1
	input.facts.right
}
`)
	src.Types = toyTypes
	p := mustCompile(t, src)
	in := input(t, `{"kind": {"group": "toy", "version": "v1", "kind": "Book"}, "object": {"shelf": 2}}`)
	if d, err := p.Patch(t.Context(), in, &shelf{cached: map[string]any{"right": true}}); err != nil || len(d.Patches) != 1 {
		t.Errorf("got %+v, %v", d, err)
	}
	_, err := p.Patch(t.Context(), in, &shelf{cached: map[string]any{"right": 1}})
	wantCause(t, err, InputNotUnderstood, "facts.right: must be a boolean, is a number")
}

// A policy may read fields whose names are only in its parameters, or in paths.
func TestTypesOfFieldsWithoutTheirNameInTheRulesAreChecked(t *testing.T) {
	for name, rule := range map[string]string{
		"parameters": `value := input.request.object.shelf[data.parameters.field]`,
		"a path":     `value := object.get(input.request.object, split("shelf.height", "."), 0)`,
	} {
		t.Run(name, func(t *testing.T) {
			src := policy("valid_input if true\n\n" + denyMetadata + `deny contains {"reason": "R", "message": "m"} if {` + "\n\t" + rule + `
	value == 3
}
`)
			src.Types, src.Parameters = toyTypes, []byte(`{"field": "height"}`)
			p := mustCompile(t, src)
			in := input(t, `{"kind": {"group": "toy", "version": "v1", "kind": "Book"}, "object": {"shelf": {"height": [], "tags": 1}}}`)
			_, err := p.Decide(t.Context(), in, &shelf{})
			wantCause(t, err, InputNotUnderstood, "shelf.height: must be a string or a number, is a list")
		})
	}
}
