package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport/cmd/internal/choice"
	"sallyport.dev/sallyport/cmd/internal/terminal"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/grants"
	"sallyport.dev/sallyport/webhooks/offline"
	"sallyport.dev/sallyport/webhooks/replay"
)

type replayOptions struct {
	files           []string
	policies        []string
	policy          string
	since           string
	baseline        []string
	patchable       grants.Kinds
	only            string
	ignoreUndecided bool
	output          string
	verbose         bool
}

func newReplayCommand() *cobra.Command {
	o := &replayOptions{}
	command := &cobra.Command{
		Use:   "replay FILE...",
		Short: "Say which recorded decisions would be others under edited policies, without a cluster",
		Long: `Puts recorded decisions to other policies than those that made them, and tells which would have been others: another
verdict, other reasons for a denial, other patches. Other words in a message are no difference.

FILE has decision records, a line of JSON each, plain or compressed by gzip; - is standard input. Lines of other output
between them are passed over, so that the log of a manager will do:

  kubectl logs -n sallyport-system -l app.kubernetes.io/name=sallyport --tail=-1 --prefix > day.log

Everything that a decision rested on is in its record: request, time, and the answers to what the policies asked. What an
edited policy asks beyond that, and cannot be answered from the answers to wider questions, is not known; nor are the data
of Secrets and kubectl's last-applied annotation, which records leave out. Such a decision is undecided, and the summary
says why.

Exit code 0 if no decision would be another one, 1 if one would, 2 if none would but something could not be decided or
read, or if the command line or a policy is wrong and nothing was replayed.`,
		Example: `  # Which decisions of a day would an edit of the table change?
  sallyport replay day.log --policies policies/

  # Only what would newly be denied or newly be admitted, under the cluster's policies after an edit
  kubectl get regopolicies -o yaml > edited.yaml
  sallyport replay day.log.gz --policies edited.yaml --only verdict

  # What does a branch change in one policy, whatever was deployed when the records were made?
  sallyport replay day.log --policies policies/ --baseline main/policies/ --policy operations-supersede --since 8h`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			o.files = args
			return o.run(command)
		},
	}
	f := command.Flags()
	f.StringSliceVar(&o.policies, "policies", nil, policiesUsage)
	f.StringVar(&o.policy, "policy", "", "the only `policy` whose decisions are replayed")
	f.StringVar(&o.since, "since", "", "replay what was decided since that `time`, as 2026-01-02T15:04:05Z, or in that duration until now, as 24h")
	f.StringSliceVar(&o.baseline, "baseline", nil, "files and folders with `policies` to hold the decisions of --policies against, in place of the recorded ones")
	f.Var(&o.patchable, "patchable", grants.Usage())
	choice.Flag(command, &o.only, "only", "", "`what` counts as another decision: verdict leaves out those with other reasons or patches only", "verdict")
	f.BoolVar(&o.ignoreUndecided, "ignore-undecided", false, "have the exit code say nothing of decisions that could not be decided, and of a record that is cut off at the end of a file")
	o.output = "text"
	choice.Flag(command, &o.output, "output", "o", "`format`: text, or json, which is an object a line and the summary last", "text", "json")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "show also each decision that could not be decided")
	return command
}

func (o *replayOptions) run(command *cobra.Command) error {
	if err := o.check(); err != nil {
		return err
	}
	inputs, err := o.inputs(command.InOrStdin())
	if err != nil {
		return err
	}
	set, err := o.set(command, o.policies)
	if err != nil {
		return err
	}
	portion, err := o.portion(command, set)
	if err != nil {
		return err
	}
	p := &replayPrinter{Printer: terminal.NewPrinter(command.OutOrStdout()), errs: command.ErrOrStderr(), options: o}
	each, end := p.result, p.summary
	if o.output == "json" {
		each, end = p.resultJSON, p.summaryJSON
	}
	summary, err := replay.New(set).Of(portion).Replay(command.Context(), inputs, func(r *replay.Result) error {
		if r.Problem == "" && !o.flips(r) && len(r.Unknown) == 0 {
			return nil
		}
		return each(r)
	})
	if err != nil {
		return fmt.Errorf("replaying: %w", err)
	}
	if err := end(summary); err != nil {
		return err
	}
	return o.verdictOf(summary)
}

// set compiles policies.
func (o *replayOptions) set(command *cobra.Command, from []string) (*catalog.Set, error) {
	collection, err := policiesOf(command, from)
	if err != nil {
		return nil, err
	}
	collection.Deliberation, collection.Patchable = deliberation, o.patchable
	return collection.Set(command.Context())
}

// portion is what of the records is replayed, and against what.
func (o *replayOptions) portion(command *cobra.Command, set *catalog.Set) (replay.Portion, error) {
	p := replay.Portion{Policy: o.policy}
	var err error
	if p.Since, err = sinceOf(o.since, clock()); err != nil {
		return p, err
	}
	if len(o.baseline) > 0 {
		if p.Baseline, err = o.set(command, o.baseline); err != nil {
			return p, fmt.Errorf("reading --baseline: %w", err)
		}
	}
	if p.Policy != "" && set.Policy(p.Policy) == nil && (p.Baseline == nil || p.Baseline.Policy(p.Policy) == nil) {
		return p, fmt.Errorf("--policy %s: there is no policy of that name", p.Policy)
	}
	return p, nil
}

// sinceOf reads --since.
func sinceOf(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil {
		return now.Add(-ago), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, fmt.Errorf("--since %q is neither a duration, such as 24h, nor a time, such as 2026-01-02T15:04:05Z", text)
	}
	return at, nil
}

func (o *replayOptions) check() error {
	if slices.Contains(o.files, offline.Stdin) && slices.Contains(slices.Concat(o.policies, o.baseline), offline.Stdin) {
		return errors.New("standard input can be read only once, and both the records and policies are to come from it")
	}
	return nil
}

// inputs are the files, all of which must be there before the first is read.
func (o *replayOptions) inputs(stdin io.Reader) ([]replay.Input, error) {
	var inputs []replay.Input
	var errs []error
	for i, file := range o.files {
		input := replay.Input{Name: file, Open: func() (io.ReadCloser, error) { return os.Open(file) }}
		if file == offline.Stdin {
			input = replay.Input{Name: "<stdin>", Open: func() (io.ReadCloser, error) { return io.NopCloser(stdin), nil }}
		} else if info, err := os.Stat(file); err != nil {
			errs = append(errs, err)
		} else if info.IsDir() {
			errs = append(errs, fmt.Errorf("%s is a folder: name the files in it", file))
		}
		if slices.Contains(o.files[:i], file) {
			errs = append(errs, fmt.Errorf("%s is named twice", file))
		}
		inputs = append(inputs, input)
	}
	return inputs, errors.Join(errs...)
}

// flips tells whether a decision would be another one, as far as that is asked for.
func (o *replayOptions) flips(r *replay.Result) bool {
	if o.only == "verdict" {
		return r.FlipsVerdict()
	}
	return r.Flips()
}

// verdictOf is the error that gives the exit code. A decision that would be another one is certain, whatever else is not.
func (o *replayOptions) verdictOf(s *replay.Summary) error {
	flips := s.Flips
	if o.only == "verdict" {
		flips = s.Verdicts
	}
	undecided := s.Undecided + s.Cut
	if o.ignoreUndecided {
		undecided = 0
	}
	switch {
	case flips > 0:
		return &verdictError{fmt.Sprintf("%d of %s would be another one", flips, plural(s.Decisions, "decision", "decisions"))}
	case s.Decisions+s.Unreadable+s.Cut == 0 && o.policy+o.since != "":
		return fmt.Errorf("there is no decision record in %s that --policy and --since let through (of %s)", strings.Join(o.files, ", "), plural(s.Others, "line", "lines"))
	case s.Decisions+s.Unreadable+s.Cut == 0:
		return fmt.Errorf("there is no decision record in %s (of %s)", strings.Join(o.files, ", "), plural(s.Others, "line", "lines"))
	case s.Unreadable > 0:
		return fmt.Errorf("%s cannot be read", plural(s.Unreadable, "decision record", "decision records"))
	case undecided > 0:
		return fmt.Errorf("%d of %s could not be decided", undecided, plural(s.Decisions+s.Cut, "decision", "decisions"))
	}
	return nil
}
