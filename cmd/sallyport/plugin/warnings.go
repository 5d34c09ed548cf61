package plugin

import (
	"context"
	"slices"

	"k8s.io/client-go/rest"
)

// warnings are the warnings of one response.
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

// warner handles the warnings of all requests.
type warner struct {
	// show prints the warnings of the user's requests.
	show rest.WarningHandler
}

// HandleWarningHeaderWithContext collects or prints a warning.
func (w warner) HandleWarningHeaderWithContext(ctx context.Context, code int, agent, text string) {
	kept, keep := ctx.Value(warningsKey{}).(*warnings)
	switch {
	case !keep:
		w.show.HandleWarningHeader(code, agent, text)
	case code == miscellaneous && !slices.Contains(kept.texts, text): // a request that was made again warns again
		kept.texts = append(kept.texts, text)
	}
}
