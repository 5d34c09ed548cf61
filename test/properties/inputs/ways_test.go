package inputs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// sharing is a world whose answers are read where a policy looks, and by which silence is remembered.
type sharing struct{ *world }

func (w sharing) For(_ *admissionv1.AdmissionRequest, subject facts.Subject) engine.Reader {
	return sharingReader{w.world, subject}
}

type sharingReader struct {
	*world
	subject facts.Subject
}

// Read answers a policy's question.
func (r sharingReader) Read(ctx context.Context, q engine.Query) (engine.Answer, error) {
	a, err := reader(r).Read(ctx, q)
	if err == nil {
		a.Value = shared(r.answer(q, r.subject))
	}
	return a, err
}

// held are the texts of objects, each made once, as caches hold them; with the object, which stays where it is as long as that.
var held sync.Map

type holding struct {
	object map[string]any
	text   func() engine.Value
}

func shared(decoded any) engine.Value {
	written := func() engine.Value {
		text, err := json.Marshal(decoded)
		if err != nil {
			panic(err) // it is JSON of a test
		}
		return engine.Text(text)
	}
	switch is := decoded.(type) {
	case []any:
		var all []engine.Value
		for _, element := range is {
			all = append(all, shared(element))
		}
		return engine.List(all)
	case map[string]any:
		one, _ := held.LoadOrStore(reflect.ValueOf(is).Pointer(), holding{is, sync.OnceValue(written)})
		return one.(holding).text()
	}
	return written()
}

// Reading no more than policies look at, and remembering what they were silent about, changes no response. Every broken input is
// named are the fields that an input is not understood for, which is a help and no decision: less of an input that is projected shows.
var named = regexp.MustCompile(`: [^ "]+ is [a-z ]+(, [^ "]+ is [a-z ]+)*`)

// asked about twice, and after inputs that are almost the same.
func TestBrokenInputsGetTheSameResponseEveryWay(t *testing.T) {
	o, lean, whole := oracleOf(t), compile(t, asShipped), compile(t, asShipped)
	draw := drawingOf(corpus(o))
	inParallel(t, trials()/2, func(i int) string {
		b, changes := draw.number(i)
		request, _ := changed("request", b.request, changes).(object)
		w := &world{objects: b.world.objects, changes: changes}
		review, err := decode(request)
		if err != nil {
			return ""
		}
		eager, err := eagerly(request)
		if err != nil {
			return fmt.Sprintf("it is decoded in one way only: %v", err)
		}
		want := gateOver(whole, w).Answer(t.Context(), &decision.Question{Endpoint: decision.Validating, Review: eager})
		for range 2 {
			got := gateOver(lean, sharing{w}).Answer(t.Context(), &decision.Question{Endpoint: decision.Validating, Review: review})
			delete(got.AuditAnnotations, "decision")
			delete(want.AuditAnnotations, "decision")
			if named.ReplaceAllString(shown(got), "") != named.ReplaceAllString(shown(want), "") {
				return fmt.Sprintf("base %s, changes %v: got %s, want %s", b.name, changes, shown(got), shown(want))
			}
		}
		return ""
	})
}

// eagerly decodes a review and puts all of it into the form that policies are evaluated on.
func eagerly(request any) (*decision.Review, error) {
	review, err := decode(request)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(request)
	if err == nil {
		review.Document, err = engine.ParseValue(text)
	}
	return review, err
}
