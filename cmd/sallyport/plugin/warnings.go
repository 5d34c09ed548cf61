package plugin

import (
	"context"
	"slices"

	"k8s.io/client-go/rest"
)

// warnings are what the API server warns of in the answer to one request.
type warnings struct {
	texts []string
}

type warningsKey struct{}

// miscellaneous is the code of all warnings that the API server gives.
const miscellaneous = 299

// keepWarnings has the warnings of the requests with that context kept, which are shown at once otherwise. The requests are
// made one after the other.
func keepWarnings(ctx context.Context) (context.Context, *warnings) {
	kept := &warnings{}
	return context.WithValue(ctx, warningsKey{}, kept), kept
}

// warner gets the warnings of all requests.
type warner struct {
	// show is for those of requests that the user has made.
	show rest.WarningHandler
}

// HandleWarningHeaderWithContext keeps or shows a warning.
func (w warner) HandleWarningHeaderWithContext(ctx context.Context, code int, agent, text string) {
	kept, keep := ctx.Value(warningsKey{}).(*warnings)
	switch {
	case !keep:
		w.show.HandleWarningHeader(code, agent, text)
	case code == miscellaneous && !slices.Contains(kept.texts, text): // a request that was made again warns again
		kept.texts = append(kept.texts, text)
	}
}
