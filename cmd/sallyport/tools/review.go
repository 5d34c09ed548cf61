package tools

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/internal/choice"
	"sallyport.dev/sallyport/cmd/internal/format"
	"sallyport.dev/sallyport/cmd/internal/terminal"
	"sallyport.dev/sallyport/cmd/internal/verdict"
	"sallyport.dev/sallyport/cmd/sallyport/bundled"
	"sallyport.dev/sallyport/cmd/sallyport/junit"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/facts"
	"sallyport.dev/sallyport/webhooks/grants"
	"sallyport.dev/sallyport/webhooks/offline"
	"sallyport.dev/sallyport/webhooks/policyfiles"
	"sallyport.dev/sallyport/webhooks/testrun"
)

// defaultUser makes the requests if --as is not set: the administrator of kubeadm, without a group that a policy could exempt.
const defaultUser = "kubernetes-admin"

var clock = time.Now

type reviewOptions struct {
	files, state []string
	recursive    bool
	policies     []string
	added        []string
	operation    string
	old          string
	subresource  string
	command      []string // of exec
	namespace    string
	user         string
	groups       []string
	now          time.Time
	validation   string
	output       string
	verbose      bool
	explain      bool
	policy       string
	patchable    grants.Kinds
}

func newReviewCommand() *cobra.Command {
	o := &reviewOptions{}
	command := &cobra.Command{
		Use:   "review -f FILE...",
		Short: "Show how a cluster would respond to a request, without a cluster",
		Long: `Runs requests through the same steps as a cluster with Sallyport: mutating policies, the schema and CEL rules of Sallyport's
kinds, and validating policies.

--state contains all existing objects; an object that is not in it does not exist. To start with the state of a cluster:

  kubectl get -A svm,svmop,svsrv,namespaces -o yaml > state.yaml

Fields that the API server sets (UIDs, times, defaults) can be omitted. If the state contains no Namespace, the namespaces
of the requests are assumed to exist without labels. The requester's permissions are read from SubjectAccessReviews with
spec and status in the state; a policy that checks a permission that is not there is undecided.

Unless --operation is set, an object that is in the state is updated, and any other object is created. An update replaces
the object, like kubectl replace. Objects are reviewed in the order of files and documents, like kubectl create -f with a
folder: an admitted object is part of the state for the following objects, a denied object is not.

Review does not check whether RBAC allows the request (see kubectl auth can-i), other webhooks and admission plugins, or
the schema of kinds that are not Sallyport's.

Exit codes: 0 if all requests are admitted, 1 if a request is denied, 2 if no request is denied but some are undecided, or
if the command line or a file is invalid.`,
		Example: `  # Can alice create this?
  sallyport review -f stop.yaml --state state.yaml --as alice

  # Review a folder of requests against the current cluster, and show the result of each policy
  kubectl get svm,svmop,svsrv,namespaces -A -o yaml | sallyport review -f operations/ --state - -v

  # Review all manifests of a team with your own policies in addition to the shipped ones, and write a JUnit report
  sallyport review -f manifests/ --state state.yaml --add-policies policies -o junit > review.xml

  # Review a deletion
  sallyport review -f vm.yaml --operation DELETE --state state.yaml

  # Why does this policy not deny the request?
  sallyport review -f stop.yaml --state state.yaml --explain --policy operations-supersede

  # Review scaling: web.yaml contains a different number of replicas than the state
  sallyport review -f web.yaml --subresource scale --state state.yaml

  # Would the window be open on Saturday?
  sallyport review -f stop.yaml --state state.yaml --add-policies windows.yaml --now 2026-11-21T22:30:00+01:00

  # Can bob run a shell in this Pod?
  sallyport review -f pod.yaml --subresource exec --state state.yaml --as bob -- sh`,
		Args: func(command *cobra.Command, args []string) error {
			if command.ArgsLenAtDash() == 0 && o.subresource == "exec" {
				return nil // what is run
			}
			return cobra.NoArgs(command, args)
		},
		RunE: func(command *cobra.Command, args []string) error {
			o.command = args
			return o.run(command)
		},
	}
	o.flags(command)
	return command
}

func (o *reviewOptions) flags(command *cobra.Command) {
	f := command.Flags()
	f.StringSliceVarP(&o.files, "filename", "f", nil, "`files` and folders with the objects to review; - means standard input; can be repeated")
	f.BoolVarP(&o.recursive, "recursive", "R", true, "read the folders of -f, --state and --policies recursively")
	f.StringSliceVar(&o.state, "state", nil, "`files` and folders with all existing objects; - means standard input; can be repeated")
	f.StringSliceVar(&o.policies, "policies", nil, policiesUsage)
	f.StringSliceVar(&o.added, "add-policies", nil, "`paths` of policies to add, see --policies; a policy replaces another one of the same name")
	f.Var(&o.patchable, "patchable", grants.Usage())
	choice.Flag(command, &o.operation, "operation", "", "`operation` of the requests: CREATE, UPDATE, DELETE or CONNECT (default: UPDATE for objects in the state, CREATE for other objects, CONNECT for the subresources exec, attach, portforward and proxy)", choice.Operations...)
	f.StringVar(&o.old, "old", "", "`file` with the existing object, instead of the one in the state; only for the update or deletion of a single object")
	choice.Flag(command, &o.subresource, "subresource", "", "`subresource` of the request: scale (-f contains Scale objects, or objects with the new number of replicas), exec, attach, portforward or proxy",
		append([]string{offline.Scale}, offline.Connections...)...)
	f.StringVarP(&o.namespace, "namespace", "n", metav1.NamespaceDefault, "`namespace` of objects without metadata.namespace")
	f.StringVar(&o.user, "as", defaultUser, "`user` that makes the requests")
	f.StringArrayVar(&o.groups, "as-group", nil, "`group` of the user; can be repeated")
	f.TimeVar(&o.now, "now", time.Time{}, []string{time.RFC3339}, "`time` of the requests, such as 2026-12-24T20:00:00+01:00 (default: the current time)")
	o.validation, o.output = string(offline.Strict), "text"
	choice.Flag(command, &o.validation, "validate", "", "how to handle unknown fields: strict, warn or ignore, like the `mode` of kubectl --validate",
		string(offline.Strict), string(offline.Warn), string(offline.Ignore))
	choice.Flag(command, &o.output, "output", "o", "output `format`: text, json or junit", "text", "json", "junit")
	f.BoolVar(&o.explain, "explain", false, "explain the result of each policy, rule by rule")
	f.StringVar(&o.policy, "policy", "", "explain only this `policy`")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "also show the result of each policy, and the changes to denied objects")
}

func (o *reviewOptions) run(command *cobra.Command) error {
	if err := o.check(); err != nil {
		return err
	}
	files := &offline.Files{Stdin: command.InOrStdin(), Recursive: o.recursive}
	collection, err := o.collection(files)
	if err != nil {
		return err
	}
	requests, state, err := o.read(files)
	if err != nil {
		return err
	}
	set, err := collection.Set(command.Context()) // last, because it takes longest
	if err != nil {
		return err
	}
	if o.policy != "" && set.Policy(o.policy) == nil {
		return fmt.Errorf("--policy: policy %s does not exist; policies are: %s", o.policy, namesOf(set))
	}
	options := offline.Options{Policies: set, Stored: collection.Objects, TestRunner: o.testRunner, State: state, Namespace: o.namespace, Now: o.time}
	if o.explain {
		options.Explain = &offline.Explaining{Policy: o.policy}
	}
	reviewer, err := bundled.Reviewer(options)
	if err != nil {
		return err
	}
	report, err := reviewer.Review(command.Context(), requests...)
	if err != nil {
		return err
	}
	if !collection.HasShipped() {
		report.Notes = append(report.Notes, noneShipped)
	}
	if err := o.print(command.OutOrStdout(), command.ErrOrStderr(), report); err != nil {
		return err
	}
	return verdictOf(report)
}

// time returns the time of the requests.
func (o *reviewOptions) time() time.Time {
	if o.now.IsZero() {
		return clock()
	}
	return o.now
}

func (o *reviewOptions) check() error {
	switch {
	case len(o.files) == 0:
		return errors.New("nothing to review: specify files with --filename")
	case o.user == "":
		return errors.New("--as must not be empty")
	case o.namespace == "":
		return errors.New("--namespace must not be empty")
	case o.policy != "" && !o.explain:
		return errors.New("--policy requires --explain: the verdict always includes every policy")
	}
	return nil
}

func namesOf(set *catalog.Set) string {
	var names []string
	for _, p := range set.Policies() {
		names = append(names, p.Name())
	}
	return strings.Join(names, ", ")
}

// deliberation is the timeout of every policy in milliseconds. Unlike in a cluster, no request waits, and a slow machine must not
// change a verdict.
const deliberation = int32(60_000)

func (o *reviewOptions) collection(files *offline.Files) (*policyfiles.Collection, error) {
	collection, err := bundled.Release.Read(files, o.policies...)
	if err != nil {
		return nil, err
	}
	if len(o.added) > 0 {
		added, err := bundled.Release.Read(files, o.added...)
		if err != nil {
			return nil, err
		}
		collection.Put(added)
	}
	collection.Deliberation, collection.Patchable = deliberation, o.patchable
	return collection, nil
}

// testRunner runs the tests of RegoPolicies in child processes, as in a cluster, but with more time: see deliberation.
func (o *reviewOptions) testRunner(stored func(context.Context) ([]v1alpha1.RegoPolicy, error)) facts.TestRunner {
	return testrun.New(testrun.Options{
		World: stored, Patchable: grants.Patchable{Kinds: o.patchable}, Process: testrun.Process{Memory: testrun.DefaultMemory}, Within: time.Duration(deliberation) * time.Millisecond / 2,
		Registry: prometheus.NewRegistry(),
		Match: func(_ context.Context, object *v1alpha1.RegoPolicy) (refused, unserved []string) {
			return bundled.Check(object), bundled.Unserved(object)
		},
	})
}

// noneShipped is a note that --policies leaves the shipped policies out.
const noneShipped = "no shipped policy was evaluated because --policies replaces them; to evaluate your policies in addition, use --add-policies"

// read returns the requests and the state, or all errors of the files.
func (o *reviewOptions) read(files *offline.Files) ([]*offline.Request, []offline.Document, error) {
	documents, err := files.Read(o.files...)
	state, stateErr := files.Read(o.state...)
	old, oldErr := o.readOld(files)
	if err = errors.Join(err, stateErr, oldErr); err != nil {
		return nil, nil, err
	}
	switch {
	case len(documents) == 0:
		return nil, nil, fmt.Errorf("nothing to review: no object in %s", strings.Join(o.files, ", "))
	case old != nil && len(documents) > 1:
		return nil, nil, fmt.Errorf("--old requires exactly one request; found %d: %s and %s", len(documents), documents[0].Place(), documents[1].Place())
	}
	requests := make([]*offline.Request, len(documents))
	for i, d := range documents {
		requests[i] = &offline.Request{
			Document: d, Operation: admissionv1.Operation(o.operation), Old: old, Subresource: o.subresource, Command: o.command,
			User: offline.UserNamed(o.user, o.groups...), Validation: offline.Validation(o.validation),
		}
	}
	return requests, state, nil
}

func (o *reviewOptions) readOld(files *offline.Files) (*offline.Document, error) {
	if o.old == "" {
		return nil, nil
	}
	documents, err := files.Read(o.old)
	switch {
	case err != nil:
		return nil, err
	case len(documents) == 0:
		return nil, fmt.Errorf("--old: no object in %s", o.old)
	case len(documents) > 1:
		return nil, fmt.Errorf("--old must contain exactly one object; found %s and %s", documents[0].Place(), documents[1].Place())
	}
	return &documents[0], nil
}

func (o *reviewOptions) print(out, errs io.Writer, report *offline.Report) error {
	switch o.output {
	case "text":
		p := reviewPrinter{Printer: terminal.NewPrinter(out), errs: errs, verbose: o.verbose, empty: len(o.state) == 0}
		return p.print(report)
	case "junit":
		return junit.Write(out, "sallyport review", reviewSuite(report))
	}
	return format.Print(out, o.output, report)
}

// verdictOf returns the error that determines the exit code. Denials take precedence over undecided requests.
func verdictOf(report *offline.Report) error {
	all := len(report.Results)
	switch {
	case report.Denied > 0 && report.Undecided > 0:
		return verdict.Bad(fmt.Sprintf("%d of %d requests denied, %d undecided", report.Denied, all, report.Undecided))
	case report.Denied > 0:
		return verdict.Bad(fmt.Sprintf("%d of %d requests denied", report.Denied, all))
	case report.Undecided > 0:
		return fmt.Errorf("%d of %d requests undecided", report.Undecided, all)
	}
	return nil
}
