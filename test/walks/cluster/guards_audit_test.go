package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"

	"sallyport.dev/sallyport/test/support/audit"
)

// whatOf is who did what, for counting.
func whatOf(e *auditv1.Event) string {
	who := e.User.Username
	if e.ImpersonatedUser != nil {
		who = e.ImpersonatedUser.Username
	}
	if e.ObjectRef == nil {
		return who + " " + e.Verb
	}
	resource := e.ObjectRef.Resource
	if e.ObjectRef.APIGroup != "" {
		resource += "." + e.ObjectRef.APIGroup
	}
	if e.ObjectRef.Subresource != "" {
		resource += "/" + e.ObjectRef.Subresource
	}
	return who + " " + e.Verb + " " + resource
}

// isWrite tells whether anybody could be asked about it.
func isWrite(e *auditv1.Event) bool {
	return e.ObjectRef != nil && slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, e.Verb)
}

// isUnanswered tells whether it was refused because nobody answers.
func isUnanswered(e *auditv1.Event) bool {
	return e.ResponseStatus != nil && strings.Contains(e.ResponseStatus.Message, "failed calling webhook")
}

// record is what the API server's audit log says of a while.
type record struct {
	requests, writes int
	unanswered       map[string]int
	users            map[string]bool
}

// recorded reads the log, once it has come to a request that is made now.
func (s *guardSite) recorded(from time.Time) *record {
	s.Helper()
	clientset, err := kubernetes.NewForConfig(s.Plane.Config)
	s.Must(err)
	mark := fmt.Sprintf("end-of-record=%d", time.Now().UnixNano())
	_, err = clientset.CoreV1().Namespaces().List(s.Context(), metav1.ListOptions{LabelSelector: mark})
	s.Must(err)
	var events []auditv1.Event
	s.Until("the end is in the audit log", func() (string, bool) {
		events, err = audit.Events(s.Audit)
		s.Must(err)
		return fmt.Sprint(len(events)), slices.ContainsFunc(events, func(e auditv1.Event) bool {
			return strings.Contains(e.RequestURI, strings.Replace(mark, "=", "%3D", 1))
		})
	})
	r := &record{unanswered: map[string]int{}, users: map[string]bool{}}
	for i := range events {
		e := &events[i]
		if e.RequestReceivedTimestamp.Time.Before(from) {
			continue
		}
		r.requests++
		if isWrite(e) {
			r.writes++
		}
		who, _, _ := strings.Cut(whatOf(e), " ")
		r.users[who] = true
		if isUnanswered(e) {
			r.unanswered[whatOf(e)]++
		}
	}
	return r
}

func (r *record) String() string {
	text := fmt.Sprintf("%d requests by %d users, of them %d writes; refused because nobody answers:", r.requests, len(r.users), r.writes)
	for _, what := range slices.Sorted(maps.Keys(r.unanswered)) {
		text += fmt.Sprintf("\n  %d %s", r.unanswered[what], what)
	}
	return text
}
