package install

import (
	"context"
	"fmt"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// containerName is that of the manager's container in the Deployment.
const containerName = "manager"

// deployed is what the chart has run: the arguments and the environment of its container, and who it is in the cluster.
type deployed struct {
	args           []string
	env            []corev1.EnvVar
	serviceAccount string
	readiness      string // the path of its probe
	selector       string // of the pods of the Deployment
}

// readDeployment reads it from the Deployment as it was installed, so that what is tested is what the chart says.
func readDeployment(ctx context.Context, c kubernetes.Interface, namespace, name string) (*deployed, error) {
	deployment, err := c.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the installed Deployment: %w", err)
	}
	d, err := deployedBy(&deployment.Spec.Template.Spec)
	if err != nil {
		return nil, fmt.Errorf("the installed Deployment %s: %w", name, err)
	}
	d.selector = metav1.FormatLabelSelector(deployment.Spec.Selector)
	return d, nil
}

// deployedBy takes it from the spec of a pod.
func deployedBy(pod *corev1.PodSpec) (*deployed, error) {
	for i := range pod.Containers {
		if c := &pod.Containers[i]; c.Name == containerName {
			path, err := probePath(c)
			return &deployed{args: c.Args, env: c.Env, serviceAccount: pod.ServiceAccountName, readiness: path}, err
		}
	}
	return nil, fmt.Errorf("there is no container %s", containerName)
}

// as gives arguments and environment as the kubelet would give them to the pod of that name and UID. Outside of a pod there are
// no limits of resources.
func (d *deployed) as(namespace, pod, uid string) (args, env []string, err error) {
	values := map[string]string{}
	for _, e := range d.env {
		value := expand(e.Value, values)
		if from := e.ValueFrom; from != nil {
			if from.FieldRef == nil {
				continue
			}
			switch from.FieldRef.FieldPath {
			case "metadata.name":
				value = pod
			case "metadata.namespace":
				value = namespace
			case "metadata.uid":
				value = uid
			default:
				return nil, nil, fmt.Errorf("environment variable %s of the installed Deployment is from field %s, which is not known outside of a pod", e.Name, from.FieldRef.FieldPath)
			}
		}
		values[e.Name] = value
		env = append(env, e.Name+"="+value)
	}
	for _, a := range d.args {
		args = append(args, expand(a, values))
	}
	return args, env, nil
}

var reference = regexp.MustCompile(`\$\(([-._a-zA-Z0-9]+)\)`)

// expand puts in values for what is written $(NAME). A name that is not known stays as it is.
func expand(text string, values map[string]string) string {
	return reference.ReplaceAllStringFunc(text, func(match string) string {
		if value, known := values[match[2:len(match)-1]]; known {
			return value
		}
		return match
	})
}
