package plugin

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/cmd/internal/decoding"
)

// errReported ends a command that has already printed its errors.
var errReported = errors.New("already printed")

// usage adds a reference to --help to an error of the command line.
func usage(command *cobra.Command, err error) error {
	return fmt.Errorf("%w\nSee '%s --help' for usage", err, command.CommandPath())
}

// describe formats an error like kubectl.
func describe(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		if unreachable := new(url.Error); errors.As(err, &unreachable) {
			return fmt.Sprintf("Unable to connect to the server: %v", err)
		}
		return fmt.Sprintf("error: %v", err)
	}
	s := status.Status()
	switch {
	case s.Reason == decoding.Reason: // which the server did not say
		return fmt.Sprintf("error: %v", err)
	case s.Reason == metav1.StatusReasonUnauthorized:
		return fmt.Sprintf("error: You must be logged in to the server (%v)", err)
	case s.Reason == metav1.StatusReasonNotFound && (s.Details == nil || s.Details.Name == ""):
		return fmt.Sprintf("Error from server (%s): %v\nCheck whether Sallyport is installed: kubectl api-resources --api-group=sallyport.dev",
			s.Reason, err)
	case s.Reason != "":
		return fmt.Sprintf("Error from server (%s): %v", s.Reason, err)
	default:
		return fmt.Sprintf("Error from server: %v", err)
	}
}

// passing reports whether an error of a read may be temporary: a network error, an API server that restarts or is overloaded, or an
// expired watch.
func passing(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	code := status.Status().Code
	return code == 0 || code >= 500 || code == 408 || code == 410 || code == 429
}
