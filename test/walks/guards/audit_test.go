package guards

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// maxLine is more than an audit event at level Metadata is long.
const maxLine = 1 << 20

// event is of an audit event what matters here.
type event struct {
	Verb       string    `json:"verb"`
	RequestURI string    `json:"requestURI"`
	Received   time.Time `json:"requestReceivedTimestamp"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	Impersonated *struct {
		Username string `json:"username"`
	} `json:"impersonatedUser"`
	Object *struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	Response struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"responseStatus"`
}

// what is who did what, for counting.
func (e *event) what() string {
	who := e.User.Username
	if e.Impersonated != nil {
		who = e.Impersonated.Username
	}
	if e.Object == nil {
		return who + " " + e.Verb
	}
	resource := e.Object.Resource
	if e.Object.APIGroup != "" {
		resource += "." + e.Object.APIGroup
	}
	if e.Object.Subresource != "" {
		resource += "/" + e.Object.Subresource
	}
	return who + " " + e.Verb + " " + resource
}

// writes tells whether anybody could be asked about it.
func (e *event) writes() bool {
	return e.Object != nil && slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, e.Verb)
}

// unanswered tells whether it was refused because nobody answers.
func (e *event) unanswered() bool {
	return strings.Contains(e.Response.Message, "failed calling webhook")
}

// record is what the API server's audit log says of a while.
type record struct {
	requests, writes int
	unanswered       map[string]int
	users            map[string]bool
}

// recorded reads the log, once it has come to a request that is made now.
func (s *site) recorded(from time.Time) *record {
	s.Helper()
	clientset, err := kubernetes.NewForConfig(s.Plane.Config)
	s.Must(err)
	mark := fmt.Sprintf("end-of-record=%d", time.Now().UnixNano())
	_, err = clientset.CoreV1().Namespaces().List(s.Context(), metav1.ListOptions{LabelSelector: mark})
	s.Must(err)
	var events []event
	s.Until("the end is in the audit log", func() (string, bool) {
		events = s.events()
		return fmt.Sprint(len(events)), slices.ContainsFunc(events, func(e event) bool {
			return strings.Contains(e.RequestURI, strings.Replace(mark, "=", "%3D", 1))
		})
	})
	r := &record{unanswered: map[string]int{}, users: map[string]bool{}}
	for i := range events {
		e := &events[i]
		if e.Received.Before(from) {
			continue
		}
		r.requests++
		if e.writes() {
			r.writes++
		}
		who, _, _ := strings.Cut(e.what(), " ")
		r.users[who] = true
		if e.unanswered() {
			r.unanswered[e.what()]++
		}
	}
	return r
}

// events are those of the log, without a line that is being written.
func (s *site) events() (all []event) {
	s.Helper()
	file, err := os.Open(s.Audit)
	s.Must(err)
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) == nil {
			all = append(all, e)
		}
	}
	s.Must(lines.Err())
	return all
}

func (r *record) String() string {
	text := fmt.Sprintf("%d requests by %d users, of them %d writes; refused because nobody answers:", r.requests, len(r.users), r.writes)
	for _, what := range slices.Sorted(maps.Keys(r.unanswered)) {
		text += fmt.Sprintf("\n  %d %s", r.unanswered[what], what)
	}
	return text
}
