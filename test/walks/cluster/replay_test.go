package cluster

import (
	"context"
	"fmt"
	"io"
	"strings"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/policies"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/replay"
)

// replays puts everything that was decided while the tests ran to the shipped policies again, and gives what would be decided
// otherwise, where a test had not changed what decides. It is for when the manager has ended.
func replays(ctx context.Context) error {
	shipped, err := policies.Shipped()
	if err != nil {
		return err
	}
	for i := range shipped {
		shipped[i].Spec.TimeoutMilliseconds = 60_000
	}
	set, err := catalog.Compile(shipped)
	if err != nil {
		return err
	}
	var others []string
	records := strings.Split(stack.Records.String(), "\n")
	input := replay.Input{Name: "stdout", Open: func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(strings.Join(records, "\n"))), nil
	}}
	summary, err := replay.New(set).Replay(ctx, []replay.Input{input}, func(r *replay.Result) error {
		if r.Line <= stack.Installing {
			return nil // the release had not made all its policies yet
		}
		if r.Problem != "" {
			others = append(others, fmt.Sprintf("line %d: %s", r.Line, r.Problem))
			return nil
		}
		for _, u := range r.Unknown {
			if set.Policy(u.Policy) != nil && u.Cause != replay.FailedThen {
				others = append(others, fmt.Sprintf("line %d: %s %s %s of %s: policy %s: %s\n%s", r.Line, r.Endpoint, r.Operation, r.Name, r.User, u.Policy, u.Why, records[r.Line-1]))
			}
		}
		for _, c := range r.Changes {
			if set.Policy(c.Policy) == nil || c.Was != nil && c.Was.Mode != v1alpha1.ModeEnforce {
				continue // a test's own policy, or its own mode for a shipped one
			}
			others = append(others, fmt.Sprintf("line %d: %s %s %s of %s: policy %s was %+v and would be %+v",
				r.Line, r.Endpoint, r.Operation, r.Name, r.User, c.Policy, c.Was, c.Would))
		}
		return nil
	})
	if err == nil && len(others) > 0 {
		err = fmt.Errorf("of %d decisions replayed these would be others:\n%s", summary.Decisions, strings.Join(others, "\n"))
	}
	if err == nil {
		fmt.Printf("%d decisions replayed, %d could not be\n", summary.Decisions, summary.Undecided)
	}
	return err
}
