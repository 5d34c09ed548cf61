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
		Long: "Tests and checks policies, without a cluster: those below a folder, one folder with a policy.yaml and its Rego for\n" +
			"each, or else the shipped ones, which are built into this program.",
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
			"Problems are told with file, line and column.\n\n" +
			"Exit code 0 if all policies are in order, 1 if one is not, 2 if they cannot be read.",
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
				return &verdictError{fmt.Sprintf("%d of %s broken", broken, plural(len(objects), "policy is", "policies are"))}
			}
			fmt.Fprintf(command.OutOrStdout(), "%s in order\n", plural(len(objects), "policy is", "policies are"))
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
		Long: "Runs the tests of the policies below DIR, or of the shipped ones: the rules named test_... in their files\n" +
			"*_test.rego.\n\n" +
			"Exit code 0 if all pass, 1 if one fails, if a policy does not compile, or if the tests evaluate less of one than\n" +
			"--coverage asks for, 2 if the policies cannot be read.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			o.out = command.OutOrStdout()
			return o.run(command, folderOf(args))
		},
	}
	command.Flags().Float64Var(&o.coverage, "coverage", 0, "`percent` of each policy that its tests must evaluate, up to 100")
	command.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "name also the tests that pass")
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
	fmt.Fprintf(o.out, "%s  %s  %s, coverage %.1f%%\n", word, name, plural(len(r.Tests), "test", "tests"), r.Coverage)
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

// plural counts something.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func indented(text string) string {
	return "      " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n      ")
}
