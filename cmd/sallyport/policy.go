package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport/cmd/sallyport/load"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/engine"
)

func newPolicyCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "policy",
		Short: "Test and check policies, without a cluster",
	}
	command.AddCommand(newPolicyTestCommand(), newPolicyCheckCommand())
	return command
}

func folderOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

func newPolicyCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check [DIR]",
		Short: "Compile policies strictly and check that they keep to the contract",
		Long: "Compiles the policies below DIR, or the shipped ones, and checks what can be said of them before any request.\n" +
			"Every problem is named with file, line and column. Exit code 1 if there is one.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			objects, err := load.Policies(folderOf(args))
			if err != nil {
				return err
			}
			broken := 0
			for _, source := range catalog.Sources(objects) {
				if err := source.Check(); err != nil {
					broken++
					fmt.Fprintln(command.OutOrStdout(), err)
				}
			}
			if broken > 0 {
				return &verdictError{fmt.Sprintf("%d of %d policies are broken", broken, len(objects))}
			}
			fmt.Fprintf(command.OutOrStdout(), "%d policies are in order\n", len(objects))
			return nil
		},
	}
}

type policyTestOptions struct {
	coverage float64
	verbose  bool
	out      io.Writer
	passed   int
	failed   int
}

func newPolicyTestCommand() *cobra.Command {
	o := &policyTestOptions{}
	command := &cobra.Command{
		Use:   "test [DIR]",
		Short: "Run the policies' own tests",
		Long: "Runs the tests of the policies below DIR, or of the shipped ones. Exit code 1 if a test fails or the tests\n" +
			"evaluate less of a policy than --coverage asks for.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			o.out = command.OutOrStdout()
			return o.run(command, folderOf(args))
		},
	}
	command.Flags().Float64Var(&o.coverage, "coverage", 0, "percent of each policy that its tests must evaluate")
	command.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "name every test")
	return command
}

func (o *policyTestOptions) run(command *cobra.Command, folder string) error {
	objects, err := load.Policies(folder)
	if err != nil {
		return err
	}
	good := true
	for _, source := range catalog.Sources(objects) {
		rehearsal, err := engine.Rehearse(command.Context(), source.Source)
		if err != nil {
			fmt.Fprintf(o.out, "FAIL  %s\n%s\n", source.Name, indented(err.Error()))
			o.failed++
			good = false
			continue
		}
		good = o.report(source.Name, rehearsal) && good
	}
	fmt.Fprintf(o.out, "%d passed, %d failed\n", o.passed, o.failed)
	if !good {
		return &verdictError{"policy tests failed"}
	}
	return nil
}

func (o *policyTestOptions) report(name string, r *engine.Rehearsal) bool {
	good := r.Passed() && r.Coverage >= o.coverage
	word := "ok  "
	if !good {
		word = "FAIL"
	}
	fmt.Fprintf(o.out, "%s  %s  %d tests, coverage %.1f%%\n", word, name, len(r.Tests), r.Coverage)
	for _, t := range r.Tests {
		o.reportTest(t)
	}
	if r.Coverage < o.coverage {
		fmt.Fprintf(o.out, "      not evaluated by any test (%.0f%% wanted): %s\n", o.coverage, strings.Join(r.Uncovered, ", "))
	}
	return good
}

func (o *policyTestOptions) reportTest(t engine.TestResult) {
	if t.Problem == "" {
		o.passed++
		if o.verbose {
			fmt.Fprintf(o.out, "      passed  %s\n", t.Name)
		}
		return
	}
	o.failed++
	fmt.Fprintf(o.out, "      FAILED  %s: %s: %s\n", t.Place, t.Name, t.Problem)
	for _, row := range t.Cases {
		fmt.Fprintf(o.out, "              row %q\n", row)
	}
	if t.Output != "" {
		fmt.Fprintln(o.out, indented(t.Output))
	}
}

func indented(text string) string {
	return "      " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n      ")
}
