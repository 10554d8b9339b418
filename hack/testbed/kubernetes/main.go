// SPDX-License-Identifier: Apache-2.0

// Command kubernetes is every component of a one-node cluster in a single binary. The component is
// the name under which the binary is called (a link) or, failing that, its first argument.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func command(make func() *cobra.Command) func() {
	return func() { os.Exit(cli.Run(make())) }
}

var components = map[string]func(){
	"etcd":                    func() { etcdmain.Main(os.Args) },
	"kube-apiserver":          command(apiserver.NewAPIServerCommand),
	"kube-controller-manager": command(controllers.NewControllerManagerCommand),
	"kubectl":                 command(kubectl.NewDefaultKubectlCommand),
	"kube-scheduler": command(func() *cobra.Command {
		return scheduler.NewSchedulerCommand()
	}),
	"kubelet": command(kubeletCommand),
}

// kubeletCommand calls a function whose type differs: since 1.34 it takes a context.
func kubeletCommand() *cobra.Command {
	switch make := any(kubelet.NewKubeletCommand).(type) {
	case func() *cobra.Command:
		return make()
	case func(context.Context) *cobra.Command:
		return make(context.Background())
	}
	panic("this release makes the kubelet's command in a way that main.go does not know")
}

func main() {
	if _, called := components[filepath.Base(os.Args[0])]; !called && len(os.Args) > 1 {
		os.Args = os.Args[1:]
	}
	if run, known := components[filepath.Base(os.Args[0])]; known {
		run()
		return
	}
	var names []string
	for name := range components {
		names = append(names, name)
	}
	sort.Strings(names)
	fmt.Fprintf(os.Stderr, "the first argument must be one of: %s\n", strings.Join(names, " "))
	os.Exit(2)
}
