package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// ErrReported ends a command that has already printed its errors.
var ErrReported = errors.New("already printed")

// UsageError adds a reference to --help to an error of the command line.
func UsageError(command *cobra.Command, err error) error {
	return fmt.Errorf("%w\nSee '%s --help' for usage", err, command.CommandPath())
}

// ExactlyOne requires one argument, of that kind.
func ExactlyOne(kind string) cobra.PositionalArgs {
	return func(command *cobra.Command, args []string) error {
		if len(args) != 1 {
			return UsageError(command, fmt.Errorf("specify exactly one %s, got %d names", kind, len(args)))
		}
		return nil
	}
}

// Describe formats an error like kubectl.
func Describe(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		if unreachable := new(url.Error); errors.As(err, &unreachable) {
			return fmt.Sprintf("Unable to connect to the server: %v", err)
		}
		return fmt.Sprintf("error: %v", err)
	}
	s := status.Status()
	switch {
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

// Temporary reports whether an error of a read may be temporary: a network error, an API server that restarts or is overloaded, or an
// expired watch.
func Temporary(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	code := status.Status().Code
	return code == 0 || code >= 500 || code == 408 || code == 410 || code == 429
}

type coded struct {
	error
	code int
}

func (c coded) Unwrap() error { return c.error }

// WithCode sets the exit code of an error that has none of its own.
func WithCode(err error, code int) error {
	if c := (coded{}); err == nil || errors.As(err, &c) {
		return err
	}
	return coded{err, code}
}

// ExitCode returns the exit code of a command: 0 on success, otherwise the code of its error or 1.
func ExitCode(err error) int {
	c := coded{}
	switch {
	case err == nil:
		return 0
	case errors.As(err, &c):
		return c.code
	}
	return 1
}

type warnings struct {
	texts []string
}

type warningsKey struct{}

// miscellaneous is the code of the API server's warnings.
const miscellaneous = 299

// keepWarnings returns a context whose requests collect their warnings instead of printing them. The requests must be sequential.
func keepWarnings(ctx context.Context) (context.Context, *warnings) {
	kept := &warnings{}
	return context.WithValue(ctx, warningsKey{}, kept), kept
}

type warner struct {
	// show prints the warnings of the user's requests.
	show rest.WarningHandler
}

func (w warner) HandleWarningHeaderWithContext(ctx context.Context, code int, agent, text string) {
	kept, keep := ctx.Value(warningsKey{}).(*warnings)
	switch {
	case !keep:
		w.show.HandleWarningHeader(code, agent, text)
	case code == miscellaneous && !slices.Contains(kept.texts, text): // a request that was made again warns again
		kept.texts = append(kept.texts, text)
	}
}
