package offline

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KubectlSays returns a status as kubectl prints it, without the file name.
func KubectlSays(status *metav1.Status) string {
	switch {
	case status.Reason == metav1.StatusReasonInvalid && status.Details != nil:
		return invalidText(status.Details)
	case status.Reason == "":
		return "Error from server: " + status.Message
	default:
		return fmt.Sprintf("Error from server (%s): %s", status.Reason, status.Message)
	}
}

func invalidText(d *metav1.StatusDetails) string {
	text := "The request is invalid"
	if d.Kind != "" || d.Name != "" {
		text = fmt.Sprintf("The %s %q is invalid", d.Kind, d.Name)
	}
	var causes []string
	for _, c := range d.Causes {
		cause := c.Message
		if c.Field != "" {
			cause = c.Field + ": " + c.Message
		}
		if !slices.Contains(causes, cause) {
			causes = append(causes, cause)
		}
	}
	switch len(causes) {
	case 0:
		return text
	case 1:
		return text + ": " + causes[0]
	}
	return text + ":\n* " + strings.Join(causes, "\n* ")
}
