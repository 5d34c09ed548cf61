package rbac

import (
	"net/http"
	"slices"
	"strings"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"sallyport.dev/sallyport/test/support/audit"
)

// everybodys are requests that Kubernetes lets every user make.
var everybodys = map[string]bool{
	"selfsubjectaccessreviews": true, "selfsubjectrulesreviews": true, "selfsubjectreviews": true,
}

// UsedBy gives what a user did, as an audit log of the API server tells, each thing once. Discovery and the like are not in it.
func UsedBy(log, user string) ([]Use, error) {
	events, err := audit.Events(log)
	if err != nil {
		return nil, err
	}
	all := map[Right]*Use{}
	for i := range events {
		e := &events[i]
		if e.User.Username != user || e.ObjectRef == nil || everybodys[e.ObjectRef.Resource] {
			continue
		}
		for _, right := range rightsOf(e) {
			use := all[right]
			if use == nil {
				use = &Use{Right: right}
				all[right] = use
			}
			use.Times++
			if e.Annotations["authorization.k8s.io/decision"] == "forbid" {
				use.Forbidden++
			}
		}
	}
	uses := make([]Use, 0, len(all))
	for _, use := range all {
		uses = append(uses, *use)
	}
	slices.SortFunc(uses, func(a, b Use) int { return strings.Compare(a.String(), b.String()) })
	return uses, nil
}

// rightsOf gives what the API server asked its authorizer about a request.
func rightsOf(e *auditv1.Event) []Right {
	o := e.ObjectRef
	right := Right{o.Namespace, o.APIGroup, o.Resource, e.Verb, o.Name}
	if o.Subresource != "" {
		right.Resource += "/" + o.Subresource
	}
	if o.Resource == "namespaces" {
		right.Namespace = "" // a Namespace is in the log as if it were in itself
	}
	switch {
	case e.Verb == "create" && o.Subresource == "":
		right.Name = "" // which is only in the body, where no authorizer looks
	case (e.Verb == "patch" || e.Verb == "update") && e.ResponseStatus != nil && e.ResponseStatus.Code == http.StatusCreated:
		create := right
		create.Verb = "create" // is asked too, when there is nothing to change yet
		return []Right{right, create}
	}
	return []Right{right}
}
