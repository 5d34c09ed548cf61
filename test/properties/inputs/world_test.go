package inputs_test

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"

	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// world answers facts as webhooks/facts does, from objects in memory, oldest first. The answers are broken, not the
// objects, so that a change reaches the policy and is not filtered away.
type world struct {
	objects []object
	changes []change
}

type reader struct {
	*world
	subject facts.Subject
}

func (w *world) For(_ *admissionv1.AdmissionRequest, subject facts.Subject) engine.Reader {
	return reader{w, subject}
}

// Read says that answers are cached unless they are asked for live, so that denials are confirmed as in production.
func (r reader) Read(_ context.Context, q engine.Query) (engine.Answer, error) {
	if q.Parent || q.Access != nil || len(q.Labels) > 0 || q.APIVersion != apiVersion && q.Kind != nodeKind {
		return engine.Answer{}, fmt.Errorf("this world cannot answer %+v", q)
	}
	if q.Live && len(q.Name) > 253 {
		return engine.Answer{}, fmt.Errorf("no object can have a name of %d characters: this is not to be asked", len(q.Name))
	}
	v, err := engine.ValueOf(r.answer(q, r.subject))
	return engine.Answer{Value: v, Live: q.Live, ResourceVersion: "7"}, err
}

func (w *world) answer(q engine.Query, subject facts.Subject) any {
	return changed(q.Kind, w.find(q, subject), w.changes)
}

func (w *world) find(q engine.Query, subject facts.Subject) any {
	list := []any{}
	for _, o := range w.objects {
		if o["kind"] != q.Kind || q.Namespace != "" && !has(o, "metadata.namespace", q.Namespace) {
			continue
		}
		if q.Name != "" {
			if has(o, "metadata.name", q.Name) {
				return o
			}
			continue
		}
		if selected(o, q) && !reviewed(o, subject) {
			list = append(list, o)
		}
	}
	if q.Name != "" {
		return nil
	}
	return list
}

func selected(o object, q engine.Query) bool {
	for field, value := range q.Fields {
		if !has(o, field, value) {
			return false
		}
	}
	for field, values := range q.Except {
		if slices.ContainsFunc(values, func(value string) bool { return has(o, field, value) }) {
			return false
		}
	}
	return true
}

func reviewed(o object, subject facts.Subject) bool {
	if o["kind"] != subject.Kind.Kind {
		return false
	}
	if subject.UID != "" {
		return has(o, "metadata.uid", string(subject.UID))
	}
	return has(o, "metadata.namespace", subject.Namespace) && has(o, "metadata.name", subject.Name)
}

func has(o any, path, value string) bool {
	found, ok := text(o, strings.Split(path, ".")...)
	return ok && found == value
}
