package tools

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
	"sallyport.dev/sallyport/cmd/internal/verdict"
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
	maxLineBytes    int
	output          string
	verbose         bool
}

func newReplayCommand() *cobra.Command {
	o := &replayOptions{}
	command := &cobra.Command{
		Use:   "replay FILE...",
		Short: "Show which recorded decisions would change under edited policies, without a cluster",
		Long: `Evaluates recorded decisions again with other policies and shows which decisions would change: a different verdict,
different reasons for a denial, or different patches. A different message text is not a change.

FILE contains decision records, one JSON object on each line, plain or compressed with gzip; - means standard input. Lines
that are not decision records are skipped, so the log of the manager can be used as it is:

  kubectl logs -n sallyport-system -l app.kubernetes.io/name=sallyport --tail=-1 --prefix > day.log

A record contains everything that the decision was based on: the request, the time, and the facts that the policies read.
Facts that only an edited policy reads are unknown unless they are part of recorded facts. The data of Secrets and
kubectl's last-applied annotation are not recorded and are unknown too. A decision that depends on an unknown value is
undecided; the summary lists the causes.

Exit codes: 0 if no decision would change, 1 if a decision would change, 2 if no decision would change but some decisions
are undecided or unreadable, or if the command line or a policy is invalid.`,
		Example: `  # Which decisions of a day would change with edited policies?
  sallyport replay day.log --policies policies/

  # Which requests would be denied or admitted instead, with the cluster's policies after an edit?
  kubectl get regopolicies -o yaml > edited.yaml
  sallyport replay day.log.gz --policies edited.yaml --only verdict

  # Which decisions does a branch change in one policy, independent of the policies that made the records?
  sallyport replay day.log --policies policies/ --baseline main/policies/ --policy operations-supersede --since 8h`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			o.files = args
			return o.run(command)
		},
	}
	f := command.Flags()
	f.StringSliceVar(&o.policies, "policies", nil, policiesUsage)
	f.StringVar(&o.policy, "policy", "", "replay only the decisions of this `policy`")
	f.StringVar(&o.since, "since", "", "replay only decisions newer than this `time`, such as 2026-01-02T15:04:05Z, or duration, such as 24h")
	f.StringSliceVar(&o.baseline, "baseline", nil, "files and folders with `policies` to compare --policies with, instead of the recorded decisions; can be repeated")
	f.Var(&o.patchable, "patchable", grants.Usage())
	choice.Flag(command, &o.only, "only", "", "`kind` of changes to report: verdict ignores decisions where only reasons or patches change (default: all changes)", "verdict")
	f.BoolVar(&o.ignoreUndecided, "ignore-undecided", false, "do not fail because of undecided decisions or a truncated record at the end of a file")
	f.IntVar(&o.maxLineBytes, "max-line-bytes", replay.DefaultLongest, "longest line that is read, in `bytes`; longer lines are reported and skipped. Memory grows with it")
	o.output = "text"
	choice.Flag(command, &o.output, "output", "o", "output `format`: text, or json (one object on each line, the summary last)", "text", "json")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "also show each undecided decision")
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

func (o *replayOptions) set(command *cobra.Command, from []string) (*catalog.Set, error) {
	collection, err := policiesOf(command, from)
	if err != nil {
		return nil, err
	}
	collection.Deliberation, collection.Patchable = deliberation, o.patchable
	return collection.Set(command.Context())
}

// portion selects the records to replay and the baseline to compare them with.
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
		return p, fmt.Errorf("--policy %s: the policy does not exist", p.Policy)
	}
	return p, nil
}

func sinceOf(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil {
		return now.Add(-ago), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, fmt.Errorf("invalid --since %q: must be a duration, such as 24h, or a time, such as 2026-01-02T15:04:05Z", text)
	}
	return at, nil
}

func (o *replayOptions) check() error {
	if slices.Contains(o.files, offline.Stdin) && slices.Contains(slices.Concat(o.policies, o.baseline), offline.Stdin) {
		return errors.New("standard input cannot be used for both records and policies")
	}
	if o.maxLineBytes < 1 {
		return fmt.Errorf("invalid --max-line-bytes %d: must be positive", o.maxLineBytes)
	}
	return nil
}

// inputs returns the files. All of them must exist before the first one is read.
func (o *replayOptions) inputs(stdin io.Reader) ([]replay.Input, error) {
	var inputs []replay.Input
	var errs []error
	for i, file := range o.files {
		input := replay.Input{Name: file, Open: func() (io.ReadCloser, error) { return os.Open(file) }, Longest: o.maxLineBytes}
		if file == offline.Stdin {
			input.Name, input.Open = "<stdin>", func() (io.ReadCloser, error) { return io.NopCloser(stdin), nil }
		} else if info, err := os.Stat(file); err != nil {
			errs = append(errs, err)
		} else if info.IsDir() {
			errs = append(errs, fmt.Errorf("%s is a folder: specify the files in it", file))
		}
		if slices.Contains(o.files[:i], file) {
			errs = append(errs, fmt.Errorf("%s is specified twice", file))
		}
		inputs = append(inputs, input)
	}
	return inputs, errors.Join(errs...)
}

// flips reports whether a decision would change, as far as --only asks for it.
func (o *replayOptions) flips(r *replay.Result) bool {
	if o.only == "verdict" {
		return r.FlipsVerdict()
	}
	return r.Flips()
}

// verdictOf returns the error that determines the exit code. Changed decisions take precedence over undecided ones.
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
		return verdict.Bad(fmt.Sprintf("%d of %s would change", flips, plural(s.Decisions, "decision", "decisions")))
	case s.Decisions+s.Unreadable+s.Cut == 0 && o.policy+o.since != "":
		return fmt.Errorf("no decision record in %s matches --policy and --since (%s read)", strings.Join(o.files, ", "), plural(s.Others, "line", "lines"))
	case s.Decisions+s.Unreadable+s.Cut == 0:
		return fmt.Errorf("no decision record in %s (%s read)", strings.Join(o.files, ", "), plural(s.Others, "line", "lines"))
	case s.Unreadable > 0:
		return fmt.Errorf("%s cannot be read", plural(s.Unreadable, "decision record", "decision records"))
	case undecided > 0:
		return fmt.Errorf("%d of %s undecided", undecided, plural(s.Decisions+s.Cut, "decision", "decisions"))
	}
	return nil
}
