package offline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Validation is how unknown fields are handled, as with kubectl --validate.
type Validation string

// Values of kubectl --validate.
const (
	Strict Validation = "strict"
	Warn   Validation = "warn"
	Ignore Validation = "ignore"
)

// Request is a request to a cluster.
type Request struct {
	Document
	// Operation is the operation; empty means UPDATE if the object exists and CREATE otherwise.
	Operation admissionv1.Operation
	// Old is the existing object, instead of the world's.
	Old *Document
	// Subresource is empty, scale, or one of Connections.
	Subresource string
	// Command is the command of exec.
	Command    []string
	User       authenticationv1.UserInfo
	Validation Validation
	// Existing is the UID of an existing object that is reviewed as if it were created now; lists omit it.
	Existing types.UID
}

// UserNamed returns the user that the API server makes of an impersonated name.
func UserNamed(name string, groups ...string) authenticationv1.UserInfo {
	u := authenticationv1.UserInfo{Username: name, Groups: groups}
	if namespace, _, err := serviceaccount.SplitUsername(name); err == nil && len(groups) == 0 {
		u.Groups = serviceaccount.MakeGroupNames(namespace)
	}
	everybody := user.AllAuthenticated
	if name == user.Anonymous {
		everybody = user.AllUnauthenticated
	}
	if !slices.Contains(u.Groups, everybody) && !slices.Contains(u.Groups, user.AllUnauthenticated) {
		u.Groups = append(slices.Clip(u.Groups), everybody)
	}
	return u
}

// pending is the state of a request.
type pending struct {
	request *Request
	result  *Result
	kind    *kind
	id      identity
	// object is the sent object, then the changed one; nil for a deletion. old is nil for a creation.
	object, old *unstructured.Unstructured
	// sent is the unchanged object.
	sent   map[string]any
	stages []stage
	// scaled is set for the subresource scale: the parent of the Scales in object and old.
	scaled *unstructured.Unstructured
	// connection is the kind of a connection's options, which are the object then; otherwise empty.
	connection schema.GroupVersionKind
	// assumed reports whether old is from the request and not in the world.
	assumed bool
	// undecided is set if a policy could not be evaluated, unjudged if the request is denied for that reason.
	undecided, unjudged bool
}

// stage is the object after a change.
type stage struct {
	by     string
	object map[string]any
}

// parse determines the object and resource of a request. An error means that no cluster would receive such a request.
func (r *Reviewer) parse(request *Request) (*pending, error) {
	d := &request.Document
	k, err := r.world.kinds.of(d)
	if err != nil {
		return nil, err
	}
	p := &pending{request: request, kind: k, object: (&unstructured.Unstructured{Object: d.Object}).DeepCopy()}
	p.sent = p.object.DeepCopy().Object
	namespace := metadataText(d.Object, "namespace")
	switch {
	case !k.namespaced:
		namespace = ""
	case namespace == "":
		namespace = r.world.namespace
	}
	p.id = identity{k.GroupKind(), namespace, metadataText(d.Object, "name")}
	switch {
	case slices.Contains(Connections, request.Subresource):
		return p, r.parseConnection(p)
	case request.Subresource != "":
		return p, r.parseScale(p)
	case request.Operation == admissionv1.Connect:
		return nil, d.errorf("CONNECT is to a subresource: %s", strings.Join(Connections, ", "))
	}
	if k.GroupVersionKind == scaleKind {
		return nil, d.errorf("a Scale is a subresource; review it with subresource %s", Scale)
	}
	if err := r.findOld(p); err != nil {
		return nil, err
	}
	p.result = p.newResult()
	return p, nil
}

// findOld finds the existing object, and sets the operation if it is empty.
func (r *Reviewer) findOld(p *pending) error {
	if p.request.Old == nil {
		p.old = r.world.get(p.id)
	} else {
		old, err := r.world.stored(p.request.Old)
		if err != nil {
			return err
		}
		if id := identityOf(old); id != p.id {
			return p.request.Old.errorf("the old object is %s, but the request in %s is about %s", id, p.request.Place(), p.id)
		}
		p.old = old
	}
	if p.old != nil {
		r.world.identify(p.old, cmp.Or(metadataText(p.sent, "uid"), overrideUID(p.object)), metadataText(p.sent, "resourceVersion"))
	}
	if p.request.Operation == "" {
		p.request.Operation = admissionv1.Create
		if p.old != nil && p.id.name != "" {
			p.request.Operation = admissionv1.Update
		}
	}
	switch {
	case p.request.Operation == admissionv1.Create && p.request.Old != nil:
		return p.request.errorf("CREATE has no old object")
	case p.request.Operation != admissionv1.Create && p.id.name == "":
		return p.request.errorf("metadata.name is missing; generateName is possible only with CREATE")
	case p.request.Operation == admissionv1.Delete && p.old == nil:
		old, err := r.world.stored(&p.request.Document)
		if err != nil {
			return err
		}
		p.old, p.assumed = old, true
	}
	return nil
}

func (p *pending) newResult() *Result {
	gv := p.kind.GroupVersion().String()
	return &Result{
		File: p.request.File, Line: p.request.Line, Operation: p.request.Operation, Subresource: p.request.Subresource,
		APIVersion: gv, Kind: p.kind.Kind, Resource: p.kind.resource.GroupResource().String(),
		Namespace: p.id.namespace, Name: p.id.name, User: p.request.User, Verdict: Admitted,
	}
}

// recordStage records the object after a change.
func (p *pending) recordStage(by string) {
	p.stages = append(p.stages, stage{by, p.object.DeepCopy().Object})
}

// addNote adds a note unless it exists already.
func (p *pending) addNote(about NoteKind, format string, args ...any) {
	if n := (Note{about, fmt.Sprintf(format, args...)}); !slices.Contains(p.result.Notes, n) {
		p.result.Notes = append(p.result.Notes, n)
	}
}

func (p *pending) resource() schema.GroupResource { return p.kind.resource.GroupResource() }

// metadataText returns a string of an object's metadata, whose shape is not checked.
func metadataText(object map[string]any, field string) string {
	text, _, _ := unstructured.NestedString(object, "metadata", field)
	return text
}
