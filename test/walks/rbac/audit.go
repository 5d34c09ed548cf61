package rbac

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
)

// maxLine is more than an audit event at level Metadata is long.
const maxLine = 1 << 20

// event is of an audit event what matters here.
type event struct {
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef *struct {
		Namespace   string `json:"namespace"`
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	Annotations map[string]string `json:"annotations"`
}

// everybodys are requests that Kubernetes lets every user make.
var everybodys = map[string]bool{
	"selfsubjectaccessreviews": true, "selfsubjectrulesreviews": true, "selfsubjectreviews": true,
}

// UsedBy gives what a user did, as an audit log of the API server tells, each thing once. Discovery and the like are not in it.
func UsedBy(log, user string) ([]Use, error) {
	file, err := os.Open(log)
	if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	defer file.Close()
	return usedBy(file, user)
}

func usedBy(log io.Reader, user string) ([]Use, error) {
	all := map[Right]*Use{}
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("decoding a line of the audit log: %w: %.200s", err, lines.Text())
		}
		if e.User.Username != user || e.ObjectRef == nil || everybodys[e.ObjectRef.Resource] {
			continue
		}
		for _, right := range e.rights() {
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
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	uses := make([]Use, 0, len(all))
	for _, use := range all {
		uses = append(uses, *use)
	}
	slices.SortFunc(uses, func(a, b Use) int { return strings.Compare(a.String(), b.String()) })
	return uses, nil
}

// rights gives what the API server asked its authorizer about a request.
func (e *event) rights() []Right {
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
	case (e.Verb == "patch" || e.Verb == "update") && e.ResponseStatus.Code == http.StatusCreated:
		create := right
		create.Verb = "create" // is asked too, when there is nothing to change yet
		return []Right{right, create}
	}
	return []Right{right}
}
