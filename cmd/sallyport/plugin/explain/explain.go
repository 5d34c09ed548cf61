// Package explain has the command that explains how the policies of a cluster evaluate a request.
package explain

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/internal/choice"
	"sallyport.dev/sallyport/cmd/internal/explained"
	"sallyport.dev/sallyport/cmd/internal/format"
	"sallyport.dev/sallyport/cmd/internal/terminal"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/commands"
	"sallyport.dev/sallyport/webhooks/offline"
)

type explaining struct {
	files       []string
	recursive   bool
	operation   string
	subresource string
	command     []string // of exec
	policy      string
	output      string
	which       cli.Selection
}

// Command returns the command `explain`.
func Command(p *cli.Plugin) *cobra.Command {
	o := &explaining{}
	command := &cobra.Command{
		Use:   "explain (-f FILE | KIND (NAME... | -l SELECTOR | --all)) [-- COMMAND]",
		Short: "Explain why policies deny or do not deny a request",
		Long: "Explains how the policies of the cluster evaluate a request: whether the API server sends the request to the policy, which\n" +
			"part of spec.match does not match, the mode, the facts, and for each rule its result or the expression (file, line and\n" +
			"column) that prevents it from applying.\n\n" +
			"The command does not change anything. It evaluates the policies locally and reads facts with your permissions; if you\n" +
			"cannot read an object, the explanation says so. With --as, it explains the request of another user: objects are still\n" +
			"read with your permissions, and the permissions of the user are checked with SubjectAccessReviews. You do not need\n" +
			"permission to impersonate the user.\n\n" +
			"-f explains the creation or replacement of the objects in the files. KIND NAME explains the creation of an existing\n" +
			"object unless --operation is set. With --subresource exec, attach, portforward or proxy, the request is a connection to\n" +
			"the object.",
		Example: `  # Why is this request not denied?
  kubectl sallyport explain -f stop.yaml

  # Why does this policy not apply to the Deployment?
  kubectl sallyport explain deployment web --policy deployments-need-an-owner

  # Which policies would deny a deletion by bob?
  kubectl sallyport explain svm web-1 --operation DELETE --as bob

  # Can I run a shell in this Pod?
  kubectl sallyport explain pod web-1 --subresource exec -- sh`,
		Args: func(command *cobra.Command, args []string) error {
			args, o.command = cutCommand(command, args)
			switch {
			case len(o.command) > 0 && o.subresource != "exec":
				return cli.UsageError(command, errors.New("a command after -- requires --subresource exec"))
			case len(args) == 0 && len(o.files) == 0:
				return cli.UsageError(command, errors.New("specify a request: -f FILE, or KIND NAME of an existing object"))
			case (len(args) > 0 || o.which.Given()) && len(o.files) > 0:
				return cli.UsageError(command, errors.New("cannot set -f and KIND NAME at the same time"))
			case len(o.files) == 0 && cli.NamesIn(args) == 0 && !o.which.Given():
				return cli.UsageError(command, fmt.Errorf("specify at least one %s by name, -l or --all", args[0]))
			case o.which.Check(cli.NamesIn(args)) != nil:
				return cli.UsageError(command, o.which.Check(cli.NamesIn(args)))
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			args, _ = cutCommand(command, args)
			return runExplain(command.Context(), p, o, args)
		},
	}
	o.which.AddTargetFlags(p, command, 0)
	f := command.Flags()
	f.StringSliceVarP(&o.files, "filename", "f", nil, "files and folders with objects; - means standard input")
	f.BoolVarP(&o.recursive, "recursive", "R", false, "read folders recursively")
	choice.Flag(command, &o.operation, "operation", "", "the operation of the request: CREATE, UPDATE, DELETE or CONNECT (default: UPDATE for existing objects in -f, CONNECT for the subresources exec, attach, portforward and proxy, otherwise CREATE)", choice.Operations...)
	choice.Flag(command, &o.subresource, "subresource", "", "the subresource of the request: scale (-f contains the new number of replicas), exec, attach, portforward or proxy", append([]string{offline.Scale}, offline.Connections...)...)
	f.StringVar(&o.policy, "policy", "", "explain only this RegoPolicy")
	format.AddFlag(command, &o.output)
	p.CompleteNames(command, "policy", cli.PolicyKind)
	return command
}

// cutCommand separates the arguments after --.
func cutCommand(command *cobra.Command, args []string) (before, behind []string) {
	if i := command.ArgsLenAtDash(); i >= 0 {
		return args[:i], args[i:]
	}
	return args, nil
}

func runExplain(ctx context.Context, p *cli.Plugin, o *explaining, args []string) error {
	s, err := newSituation(ctx, p, o.policy)
	if err != nil {
		return err
	}
	if err := s.requests(p, o, args); err != nil {
		return err
	}
	if len(s.asked) == 0 {
		return nil
	}
	report, err := s.review(p, o)
	if err != nil {
		return err
	}
	if o.output != "" {
		return format.Print(p.Out, o.output, report)
	}
	if text := s.unserved(p); text != "" {
		fmt.Fprintln(p.ErrOut, "Warning:", text)
	}
	for _, note := range append(s.notes, report.Warnings...) {
		fmt.Fprintln(p.ErrOut, "Note:", note)
	}
	s.print(terminal.NewPrinter(p.Out), report, o.policy)
	return nil
}

// unserved returns why the cluster does not evaluate policies at the moment, or "".
func (s *situation) unserved(p *cli.Plugin) string {
	service := s.Service(s.ctx, p)
	return service.Trouble(s.policies, p.Now())
}

func (s *situation) print(out terminal.Printer, report *offline.Report, only string) {
	for i, r := range report.Results {
		if i > 0 {
			out.Say("")
		}
		what := r.Resource
		if r.Subresource != "" {
			what += "/" + r.Subresource
		}
		where := ""
		if r.Namespace != "" {
			where = " in namespace " + r.Namespace
		}
		out.Say("%s", out.Paint(terminal.Bold, fmt.Sprintf("%s of %s %s%s, by %s", r.Operation, what, r.Name, where, r.User.Username)))
		if len(r.Explanations) == 0 {
			switch {
			case r.Status != nil && len(r.Policies) > 0:
				out.Say("denied before %s is evaluated: %s", only, r.Status.Message)
			case r.Status != nil:
				out.Say("denied before any policy is evaluated: %s", r.Status.Message)
			case only != "":
				out.Say("%s: has no rule that applies to requests", only)
			default:
				out.Say("no policies")
			}
			continue
		}
		for _, note := range r.Notes {
			if note.About == offline.AboutPatches {
				out.Say("%s", note.Text)
			}
		}
		explained.Print(out, "", r.Explanations)
		if r.Status != nil && len(r.Policies) == 0 {
			out.Say("The request is denied for another reason: %s", r.Status.Message)
		}
	}
}

// registration adds condition Registered to the explanation of policies that the API server does not call.
func (s *situation) registration(report *offline.Report) {
	for _, r := range report.Results {
		for _, e := range r.Explanations {
			if e.Unasked == "" {
				continue
			}
			for i := range s.policies {
				c := v1alpha1.ConditionRegistered.In(s.policies[i].Status.Conditions)
				if s.policies[i].Name == e.Policy && c != nil && c.Status != metav1.ConditionTrue {
					e.LeftOut(fmt.Sprintf("%s; condition %s of the RegoPolicy is %s, %s: %s", e.Unasked, c.Type, c.Status, c.Reason, c.Message))
				}
			}
		}
	}
}

// impersonated removes --as and related flags, and returns their user; nil without --as. The caller reads the objects to explain, and
// needs no right to impersonate.
func impersonated(p *cli.Plugin) *authenticationv1.UserInfo {
	f := p.Flags
	if *f.Impersonate == "" {
		return nil // with --as-group alone, the API server reports the error
	}
	user := offline.UserNamed(*f.Impersonate, *f.ImpersonateGroup...)
	user.UID = *f.ImpersonateUID
	for _, extra := range *f.ImpersonateUserExtra {
		key, value, _ := strings.Cut(extra, "=")
		if user.Extra == nil {
			user.Extra = map[string]authenticationv1.ExtraValue{}
		}
		user.Extra[key] = append(user.Extra[key], value)
	}
	*f.Impersonate, *f.ImpersonateUID, *f.ImpersonateGroup, *f.ImpersonateUserExtra = "", "", nil, nil
	return &user
}

// policyViewer is the chart's default name of the ClusterRole that grants reading RegoPolicies.
const policyViewer = cli.Product + "-policy-viewer"

// unread returns why the RegoPolicies cannot be read, and how to get access.
func unread(err error) error {
	err = fmt.Errorf("reading RegoPolicies: %w", err)
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w\nTo get access, ask a cluster administrator to run: %s", err,
			commands.Line("kubectl", "create", "clusterrolebinding", policyViewer+"-USER", "--clusterrole="+policyViewer, "--user=USER"))
	}
	return err
}
